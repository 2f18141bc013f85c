#include "ucx_move.hpp"

#include <algorithm>
#include <poll.h>

namespace ucx {

namespace {

constexpr uint64_t PIECE = uint64_t{4} << 20;
constexpr size_t AT_ONCE = 4;
constexpr double LOOK_S = 0.005;
constexpr double PATIENCE_S = 2.0; // for pieces under way, when no more is wanted: a dead peer is known before
constexpr double STUCK_S = 5.0;    // for them to end once their endpoint is closed
const uint64_t OUTSIDE = 0;

// Said, so that UCX need not find out what kind of memory it is.
RequestParameters host_memory() {
    RequestParameters parameters = {};
    parameters.mask = RequestParameters::MEMORY_TYPE;
    return parameters;
}
const RequestParameters HOST = host_memory();

bool has_hung_up(int fd) {
    pollfd entry = {fd, POLLRDHUP, 0};
    return poll(&entry, 1, 0) > 0;
}

} // namespace

Move::Move(Engine &engine, std::shared_ptr<Link> link, uint64_t region, bool write, uint64_t offset, uint64_t length,
           uint64_t local, int memory_type, const Stop &stop, double deadline, int control)
    : engine_(engine), link_(std::move(link)), region_(link_->regions.at(region)), write_(write), offset_(offset),
      length_(length), local_(reinterpret_cast<char *>(local)), stop_(stop), deadline_(deadline), control_(control) {
    local_kind_.mask = RequestParameters::MEMORY_TYPE, local_kind_.memory_type = memory_type;
}

bool Move::advance() {
    if (!is_begun_)
        is_begun_ = true, ++link_->operations;
    reap();
    look();
    if (outcome_.status == DONE) {
        if (!step())
            return false;
    } else if (!pending_.empty()) {
        if (outcome_.status == OWNER_LOST || now() > give_up_at_)
            engine_.break_link(*link_, CANCELED); // with which all of them end
        is_stuck_ = now() > give_up_at_ + STUCK_S;
        return is_stuck_; // then the link keeps its operation, and is never freed either
    }
    leave();
    --link_->operations;
    return true;
}

// Whether all of it is done.
bool Move::step() {
    for (;;) {
        if (stage_ != Stage::DATA && !pending_.empty())
            return false;
        switch (stage_) {
        case Stage::LANE:
            if (link_->free_lanes.empty())
                return false;
            lane_ = link_->free_lanes.back();
            link_->free_lanes.pop_back();
            in_lane_ = region_->slot + 1;
            post(engine_.library().put(link_->endpoint, &in_lane_, sizeof in_lane_,
                                       link_->lanes_address + 8 * static_cast<uint64_t>(lane_), link_->lanes_key,
                                       &HOST));
            post(engine_.library().flush(link_->endpoint, &HOST)); // a fence would hold the thread up
            stage_ = Stage::ENTERING;
            break;
        case Stage::ENTERING:
            see_generation();
            stage_ = Stage::ENTERED;
            break;
        case Stage::ENTERED:
        case Stage::CONFIRMED:
            if (seen_ != region_->generation)
                end(DROPPED);
            if (stage_ == Stage::CONFIRMED)
                return true;
            stage_ = Stage::DATA;
            break;
        case Stage::DATA:
            while (outcome_.status == DONE && posted_ < length_ && pending_.size() < AT_ONCE)
                move_piece();
            if (!pending_.empty())
                return false;
            if (write_)
                post(engine_.library().flush(link_->endpoint, &HOST));
            stage_ = Stage::FLUSHED;
            break;
        case Stage::FLUSHED:
            see_generation();
            stage_ = Stage::CONFIRMED;
            break;
        }
        if (outcome_.status != DONE)
            return pending_.empty();
    }
}

void Move::look() {
    if (outcome_.status != DONE)
        return;
    if (link_->is_broken)
        return end(FAILED, link_->why);
    if (stop_.is_set())
        return end(STOPPED);
    const double at = now();
    if (at > deadline_)
        return end(LATE);
    if (at - looked_at_ < LOOK_S)
        return;
    looked_at_ = at;
    if (has_hung_up(control_))
        end(OWNER_LOST);
}

void Move::reap() {
    for (auto at = pending_.begin(); at != pending_.end();) {
        const Status status = engine_.library().check(*at);
        if (status == IN_PROGRESS) {
            ++at;
            continue;
        }
        engine_.library().free(*at);
        at = pending_.erase(at);
        if (status != OK)
            end(FAILED, status);
    }
}

void Move::end(::Status status, int error) {
    if (outcome_.status != DONE)
        return;
    if (status == FAILED && has_hung_up(control_))
        status = OWNER_LOST, error = 0; // which is why
    outcome_ = {status, error}, give_up_at_ = now() + PATIENCE_S;
}

void Move::post(StatusPointer request) {
    if (is_error(request))
        end(FAILED, status_of(request));
    else if (request)
        pending_.push_back(request);
}

void Move::see_generation() {
    seen_ = 0;
    post(engine_.library().get(link_->endpoint, &seen_, sizeof seen_, region_->word_address, region_->word_key,
                               &HOST));
}

void Move::move_piece() {
    const uint64_t size = std::min(PIECE, length_ - posted_), there = region_->address + offset_ + posted_;
    const auto &library = engine_.library();
    post(write_ ? library.put(link_->endpoint, local_ + posted_, size, there, region_->key, &local_kind_)
                : library.get(link_->endpoint, local_ + posted_, size, there, region_->key, &local_kind_));
    posted_ += size;
}

void Move::leave() {
    region_.reset();
    if (lane_ < 0)
        return;
    if (!link_->is_broken)
        engine_.forget(engine_.library().put(link_->endpoint, &OUTSIDE, sizeof OUTSIDE,
                                             link_->lanes_address + 8 * static_cast<uint64_t>(lane_), link_->lanes_key,
                                             &HOST));
    link_->free_lanes.push_back(lane_);
    lane_ = -1;
}

void Move::abort(Status why) {
    is_stuck_ = !pending_.empty();
    if (!is_stuck_)
        region_.reset();
    end(FAILED, why);
}

} // namespace ucx
