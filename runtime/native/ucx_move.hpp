// One transfer between a region and memory here.
#pragma once

#include "memory.hpp"
#include "ucx_engine.hpp"

namespace ucx {

// In its order: it says in a lane of the owner's which region it is in, sees that the region has the generation
// that is wanted, moves, sees the same again, and leaves the lane. Whoever drops the region changes the generation
// first and then waits for the lanes: one of the two sees the other. After that the owner takes the registration
// back, and the network card refuses whoever comes still.
class Move : public Operation {
  public:
    Move(Engine &engine, std::shared_ptr<Link> link, uint64_t region, bool write, uint64_t offset, uint64_t length,
         uint64_t local, int memory_type, const Stop &stop, double deadline, int control);
    bool advance() override;
    void abort(Status why) override;
    int watched() const override { return control_; }
    Outcome outcome() const { return outcome_; }
    // UCX does not let go of the memory: neither that nor this object may be freed.
    bool is_stuck() const { return is_stuck_; }

  private:
    enum class Stage { LANE, ENTERING, ENTERED, DATA, FLUSHED, CONFIRMED };

    bool step();
    void look();
    void reap();
    void end(::Status status, int error = 0);
    void post(StatusPointer request);
    void see_generation();
    void move_piece();
    void leave();

    Engine &engine_;
    std::shared_ptr<Link> link_;
    std::shared_ptr<Region> region_;
    bool write_;
    uint64_t offset_, length_;
    char *local_;
    RequestParameters local_kind_ = {};
    const Stop &stop_;
    double deadline_;
    int control_;

    Stage stage_ = Stage::LANE;
    int lane_ = -1;
    uint64_t in_lane_ = 0, seen_ = 0, posted_ = 0;
    std::vector<StatusPointer> pending_;
    double looked_at_ = 0, give_up_at_ = 0;
    bool is_begun_ = false, is_stuck_ = false;
    Outcome outcome_;
};

} // namespace ucx
