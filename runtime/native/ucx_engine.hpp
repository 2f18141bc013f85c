// One thread that does all of a process's work with UCX: its own transfers, and what others need of it.
//
// UCX needs its worker to be moved on by somebody, at the owner too, until a peer has connected; after that the
// network card alone serves it. One thread for all means that no two threads are ever inside of UCX, which not
// every build of it allows.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ucx_library.hpp"

namespace ucx {

class Engine;

// A region at the end of a link, for as long as it is known or used. It ends on the engine's thread.
struct Region {
    const Library &library;
    uint64_t slot, generation, address, word_address;
    RemoteKey key = nullptr, word_key = nullptr;

    ~Region() {
        for (RemoteKey each : {key, word_key})
            if (each)
                library.destroy_key(each);
    }
};

// An endpoint to one owner. On the engine's thread only.
struct Link {
    Endpoint endpoint = nullptr;
    bool is_broken = false;
    Status why = OK;
    uint64_t lanes_address = 0; // words at the owner, in each of which a transfer says what it is in
    RemoteKey lanes_key = nullptr;
    std::vector<int> free_lanes;
    std::map<uint64_t, std::shared_ptr<Region>> regions;
    size_t operations = 0;
    bool is_connected = false;
    bool is_closing = false;
};

// What takes more than one step. The thread that asked waits for it.
class Operation {
  public:
    virtual ~Operation() = default;
    virtual bool advance() = 0;             // whether it is over; after each progress
    virtual void abort(Status why) = 0;     // it is over now: the engine ends
    virtual int watched() const { return -1; } // a descriptor whose hang-up it wants to see at once

  private:
    friend class Engine;
    bool is_over_ = false;
};

class Engine {
  public:
    // Configured by the environment: most settings have no other way in. Throws std::runtime_error, as everything
    // here does; its text is the reason in UCX's own words.
    explicit Engine(const std::string &library);
    ~Engine();
    void close();

    // Calls `work` on the engine's thread.
    template <typename Work> auto call(Work work) -> decltype(work()) {
        using Result = decltype(work());
        auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
        auto result = task->get_future();
        submit([task] { (*task)(); });
        return result.get();
    }
    // Has it advanced until it is over.
    void run(Operation &operation);

    // For what runs on the thread.
    const Library &library() const { return *library_; }
    Worker worker() const { return worker_; }
    Context context() const { return context_; }
    // To be freed when it is done, and what it may still call then.
    void forget(StatusPointer request, std::shared_ptr<Link> kept = nullptr);
    void break_link(Link &link, Status why);
    [[noreturn]] void raise(const char *what, Status status) const;
    void check(const char *what, Status status) const {
        if (status != OK)
            raise(what, status);
    }
    // Error handlers for endpoints.
    static void on_error(void *link, Endpoint, Status status);

    uint64_t add(std::shared_ptr<Link> link);
    std::shared_ptr<Link> link(uint64_t number) const;
    void remove(uint64_t number);

    // (number, its packed key). For memory that others are to use.
    std::pair<uint64_t, std::string> map(uint64_t address, uint64_t length, unsigned protection, int memory_type);
    void unmap(uint64_t number);
    std::string address() const;
    uint16_t listen(const std::string &address);
    uint64_t memory_types() const;
    size_t mapped() const { return maps_.size(); }
    size_t links() const { return links_.size(); }

  private:
    void submit(std::function<void()> command);
    void begin();
    void loop();
    void advance_all();
    void bury();
    void close_link(const std::shared_ptr<Link> &link);
    void wait_for_events();
    void end();
    static void on_connection(Connection, void *engine);

    std::shared_ptr<const Library> library_;
    Context context_ = nullptr;
    Worker worker_ = nullptr;
    Listener listener_ = nullptr;
    int events_ = -1, wake_ = -1;

    std::mutex mutex_;
    std::condition_variable over_;
    std::vector<std::function<void()>> commands_;
    bool is_ending_ = false;
    std::thread thread_;

    std::list<Operation *> operations_;
    std::vector<std::pair<StatusPointer, std::shared_ptr<Link>>> forgotten_;
    std::map<uint64_t, std::shared_ptr<Link>> links_;
    std::vector<std::shared_ptr<Link>> dying_;
    std::vector<std::shared_ptr<Link>> unconnected_; // for good: to close one of those can end in UCX's abort()
    std::vector<std::shared_ptr<Link>> accepted_; // of those who connected by the listener
    std::map<uint64_t, Memory> maps_;
    uint64_t last_ = 0;
};

// Waits until an endpoint is connected.
class Connect : public Operation {
  public:
    Connect(Engine &engine, std::shared_ptr<Link> link, double deadline)
        : engine_(engine), link_(std::move(link)), deadline_(deadline) {}
    bool advance() override;
    void abort(Status why) override;
    Status outcome() const { return outcome_; }

  private:
    Engine &engine_;
    std::shared_ptr<Link> link_;
    double deadline_;
    bool is_begun_ = false;
    StatusPointer request_ = nullptr;
    Status outcome_ = OK;
};

} // namespace ucx
