#include "ucx_engine.hpp"

#include <algorithm>
#include <atomic>
#include <arpa/inet.h>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

#include "memory.hpp"

namespace ucx {

namespace {

constexpr int SPINS = 200;     // looks without news before the thread sleeps: a short transfer ends before
constexpr int LOOK_MS = 10;    // how often a sleeping thread looks at clocks and stops
constexpr double END_S = 1.0;  // for endpoints to close at the end
constexpr int LANES = 16;

// UCX has threads and state of its own that a forked child has not, and could not begin anew.
void refuse_in_forked_child() {
    static std::atomic<pid_t> opened{0};
    pid_t nobody = 0;
    if (!opened.compare_exchange_strong(nobody, getpid()) && nobody != getpid())
        throw std::runtime_error("this process was forked from one that had UCX open");
}

RequestParameters by_force() {
    RequestParameters parameters = {};
    parameters.mask = RequestParameters::FLAGS, parameters.flags = RequestParameters::CLOSE_BY_FORCE;
    return parameters;
}

} // namespace

Engine::Engine(const std::string &name) {
    refuse_in_forked_child();
    library_ = Library::open(name);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0)
        throw std::runtime_error("no descriptor is left");
    std::promise<void> begun;
    thread_ = std::thread([&] {
        try {
            begin();
        } catch (...) {
            end();
            return begun.set_exception(std::current_exception());
        }
        begun.set_value();
        loop();
    });
    try {
        begun.get_future().get();
    } catch (...) {
        thread_.join();
        ::close(wake_);
        throw;
    }
}

Engine::~Engine() {
    close();
    ::close(wake_);
}

void Engine::close() {
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        is_ending_ = true;
    }
    eventfd_write(wake_, 1);
    if (thread_.joinable())
        thread_.join();
}

void Engine::begin() {
    Config config;
    check("its configuration", library_->config_read(nullptr, nullptr, &config));
    Parameters parameters = {};
    parameters.mask = Parameters::FEATURES;
    parameters.features = FEATURE_RMA | FEATURE_WAKEUP;
    const Status status = library_->init(API_MAJOR, API_MINOR, &parameters, config, &context_);
    library_->config_release(config);
    check("its start", status);
    WorkerParameters one = {};
    one.mask = WorkerParameters::THREAD_MODE;
    check("a worker", library_->worker_create(context_, &one, &worker_));
    check("its events", library_->event_fd(worker_, &events_));
}

void Engine::submit(std::function<void()> command) {
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (is_ending_)
            throw std::runtime_error("UCX is closed in this process");
        commands_.push_back(std::move(command));
    }
    eventfd_write(wake_, 1);
}

void Engine::run(Operation &operation) {
    submit([&] { operations_.push_back(&operation); });
    std::unique_lock<std::mutex> guard(mutex_);
    over_.wait(guard, [&] { return operation.is_over_; });
}

void Engine::loop() {
    for (int quiet = 0;;) {
        std::vector<std::function<void()>> commands;
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            commands.swap(commands_);
            if (is_ending_ && commands.empty())
                break;
        }
        for (auto &command : commands)
            command();
        bool is_news = !commands.empty();
        for (int i = 0; i < 64 && library_->progress(worker_); ++i)
            is_news = true;
        advance_all();
        bury();
        if (is_news)
            quiet = 0;
        else if (operations_.empty() || ++quiet > SPINS)
            wait_for_events();
    }
    end();
}

void Engine::advance_all() {
    for (auto at = operations_.begin(); at != operations_.end();) {
        if (!(*at)->advance()) {
            ++at;
            continue;
        }
        const std::lock_guard<std::mutex> guard(mutex_);
        (*at)->is_over_ = true; // and may be gone, once the lock is free
        at = operations_.erase(at);
        over_.notify_all();
    }
    for (auto at = forgotten_.begin(); at != forgotten_.end();) {
        if (library_->check(at->first) == IN_PROGRESS) {
            ++at;
        } else {
            library_->free(at->first);
            at = forgotten_.erase(at);
        }
    }
}

// Endpoints that failed, or are no longer wanted, once nothing is under way on them.
void Engine::bury() {
    for (auto &peer : accepted_)
        if (peer->is_broken)
            close_link(peer);
    accepted_.erase(std::remove_if(accepted_.begin(), accepted_.end(), [](auto &peer) { return peer->is_closing; }),
                    accepted_.end());
    for (auto &[_, link] : links_)
        if (link->is_broken && link->is_connected)
            close_link(link); // what is under way ends with an error
    for (auto at = dying_.begin(); at != dying_.end();) {
        close_link(*at);
        if ((*at)->operations) {
            ++at;
            continue;
        }
        (*at)->regions.clear();
        if ((*at)->lanes_key)
            library_->destroy_key((*at)->lanes_key);
        at = dying_.erase(at);
    }
}

void Engine::close_link(const std::shared_ptr<Link> &link) {
    if (link->is_closing)
        return;
    link->is_closing = true, link->is_broken = true;
    const RequestParameters parameters = by_force();
    forget(library_->close(link->endpoint, &parameters), link);
}

void Engine::break_link(Link &link, Status why) {
    if (!link.is_broken)
        link.is_broken = true, link.why = why;
}

void Engine::forget(StatusPointer request, std::shared_ptr<Link> kept) {
    if (request && !is_error(request))
        forgotten_.emplace_back(request, std::move(kept));
}

void Engine::wait_for_events() {
    // Only where nothing is left to be done does it promise to tell.
    const Status armed = library_->arm(worker_);
    if (armed == BUSY)
        return;
    std::vector<pollfd> entries = {{events_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (const Operation *operation : operations_)
        if (operation->watched() >= 0)
            entries.push_back({operation->watched(), POLLRDHUP, 0});
    const bool is_waiting = operations_.empty() && forgotten_.empty() && dying_.empty() && armed == OK;
    poll(entries.data(), entries.size(), is_waiting ? -1 : LOOK_MS);
    eventfd_t count;
    eventfd_read(wake_, &count);
}

void Engine::end() {
    for (auto *operation : operations_) {
        operation->abort(CANCELED);
        const std::lock_guard<std::mutex> guard(mutex_);
        operation->is_over_ = true;
    }
    operations_.clear();
    over_.notify_all();
    for (auto &[_, link] : links_)
        link->operations = 0, (link->is_connected ? dying_ : unconnected_).push_back(link);
    links_.clear();
    for (auto &peer : accepted_)
        dying_.push_back(peer);
    accepted_.clear();
    if (worker_) {
        bury();
        for (const double until = now() + END_S; !forgotten_.empty() && now() < until; advance_all())
            library_->progress(worker_);
    }
    for (auto &[_, memory] : maps_)
        library_->unmap(context_, memory);
    maps_.clear();
    if (!forgotten_.empty() || !unconnected_.empty())
        return; // some endpoint does not close: what it uses is left as it is
    if (listener_)
        library_->listener_destroy(listener_);
    if (worker_)
        library_->worker_destroy(worker_);
    if (context_)
        library_->cleanup(context_);
    listener_ = nullptr, worker_ = nullptr, context_ = nullptr;
}

void Engine::raise(const char *what, Status status) const {
    throw std::runtime_error("UCX " + library_->version() + ", " + what + ": " + library_->words(status));
}

void Engine::on_error(void *link, Endpoint, Status status) {
    auto *found = static_cast<Link *>(link);
    if (!found->is_broken)
        found->is_broken = true, found->why = status;
}

void Engine::on_connection(Connection connection, void *argument) {
    auto *engine = static_cast<Engine *>(argument);
    auto peer = std::make_shared<Link>();
    EndpointParameters parameters = {};
    parameters.mask = EndpointParameters::CONNECTION | EndpointParameters::ERROR_MODE | EndpointParameters::ON_ERROR;
    parameters.connection = connection;
    parameters.error_mode = EndpointParameters::PEER_ERRORS;
    parameters.on_error = {reinterpret_cast<void *>(&Engine::on_error), peer.get()};
    if (engine->library_->connect(engine->worker_, &parameters, &peer->endpoint) == OK)
        engine->accepted_.push_back(std::move(peer));
}

uint64_t Engine::add(std::shared_ptr<Link> link) {
    for (int lane = LANES; lane--;)
        link->free_lanes.push_back(lane);
    links_[++last_] = std::move(link);
    return last_;
}

std::shared_ptr<Link> Engine::link(uint64_t number) const {
    const auto found = links_.find(number);
    if (found == links_.end())
        throw std::runtime_error("the connection is closed");
    return found->second;
}

void Engine::remove(uint64_t number) {
    if (const auto found = links_.find(number); found != links_.end()) {
        (found->second->is_connected ? dying_ : unconnected_).push_back(found->second);
        links_.erase(found);
    }
}

std::pair<uint64_t, std::string> Engine::map(uint64_t address, uint64_t length, unsigned protection, int memory_type) {
    MapParameters parameters = {};
    parameters.mask = MapParameters::ADDRESS | MapParameters::LENGTH | MapParameters::PROTECTION |
                      MapParameters::MEMORY_TYPE;
    parameters.address = reinterpret_cast<void *>(address), parameters.length = length;
    parameters.protection = protection, parameters.memory_type = memory_type;
    Memory memory;
    check("registering memory", library_->map(context_, &parameters, &memory));
    void *packed;
    size_t size;
    if (const Status status = library_->pack_key(context_, memory, &packed, &size); status != OK) {
        library_->unmap(context_, memory);
        raise("the key of a region", status);
    }
    std::string key(static_cast<char *>(packed), size);
    library_->release_key(packed);
    maps_[++last_] = memory;
    return {last_, key};
}

void Engine::unmap(uint64_t number) {
    if (const auto found = maps_.find(number); found != maps_.end()) {
        const Memory memory = found->second;
        maps_.erase(found);
        check("letting go of memory", library_->unmap(context_, memory));
    }
}

std::string Engine::address() const {
    Address address;
    size_t size;
    check("its address", library_->worker_address(worker_, &address, &size));
    std::string packed(reinterpret_cast<char *>(address), size);
    library_->release_address(worker_, address);
    return packed;
}

uint16_t Engine::listen(const std::string &address) {
    sockaddr_in where = {};
    where.sin_family = AF_INET;
    if (inet_pton(AF_INET, address.c_str(), &where.sin_addr) != 1)
        throw std::runtime_error("not an IPv4 address: " + address);
    ListenerParameters parameters = {};
    parameters.mask = ListenerParameters::ADDRESS | ListenerParameters::ON_CONNECTION;
    parameters.address = {reinterpret_cast<sockaddr *>(&where), sizeof where};
    parameters.on_connection = {reinterpret_cast<void *>(&Engine::on_connection), this};
    check("a listener", library_->listen(worker_, &parameters, &listener_));
    ListenerAttributes attributes = {};
    attributes.mask = ListenerAttributes::ADDRESS;
    check("its port", library_->listener_query(listener_, &attributes));
    memcpy(&where, &attributes.address, sizeof where);
    return ntohs(where.sin_port);
}

uint64_t Engine::memory_types() const {
    ContextAttributes attributes = {};
    attributes.mask = ContextAttributes::MEMORY_TYPES;
    check("its kinds of memory", library_->context_query(context_, &attributes));
    return attributes.memory_types;
}

bool Connect::advance() {
    if (!is_begun_) {
        is_begun_ = true;
        ++link_->operations;
        const RequestParameters parameters = {};
        request_ = engine_.library().flush(link_->endpoint, &parameters);
    }
    Status status = is_error(request_) ? status_of(request_) : request_ ? engine_.library().check(request_) : OK;
    if (status == IN_PROGRESS && now() < deadline_ && !link_->is_broken)
        return false;
    if (status == IN_PROGRESS)
        engine_.break_link(*link_, CANCELED);
    if (request_ && !is_error(request_))
        engine_.forget(request_);
    outcome_ = link_->is_broken ? link_->why : status;
    link_->is_connected = outcome_ == OK;
    --link_->operations;
    return true;
}

void Connect::abort(Status why) { outcome_ = why; }

} // namespace ucx
