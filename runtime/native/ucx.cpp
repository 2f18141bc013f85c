// UCX for Python: what a process offers to others by it, and what it does at others.

#include <arpa/inet.h>
#include <stdexcept>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "ucx_move.hpp"

using namespace nb::literals;

namespace {

std::string text_of(const nb::bytes &value) { return {static_cast<const char *>(value.data()), value.size()}; }

class Ucx {
  public:
    explicit Ucx(const std::string &library) {
        nb::gil_scoped_release release;
        engine_ = std::make_shared<ucx::Engine>(library);
    }

    std::string version() const { return engine_->library().version(); }
    std::string words(int status) const { return engine_->library().words(static_cast<ucx::Status>(status)); }

    uint64_t memory_types() {
        return called([&] { return engine_->memory_types(); });
    }

    nb::bytes address() {
        const std::string packed = called([&] { return engine_->address(); });
        return nb::bytes(packed.data(), packed.size());
    }

    int listen(const std::string &address) {
        return called([&] { return engine_->listen(address); });
    }

    std::pair<uint64_t, nb::bytes> map(uint64_t address, uint64_t length, bool read, bool write, int memory_type) {
        using Parameters = ucx::MapParameters;
        const unsigned protection = Parameters::LOCAL_READ | (read ? Parameters::REMOTE_READ : 0) |
                                    (write ? Parameters::LOCAL_WRITE | Parameters::REMOTE_WRITE : 0);
        const auto made = called([&] { return engine_->map(address, length, protection, memory_type); });
        return {made.first, nb::bytes(made.second.data(), made.second.size())};
    }

    void unmap(uint64_t number) {
        called([&] { engine_->unmap(number); });
    }

    // To the owner whose packed address, or whose listener, it is given.
    uint64_t connect(const nb::bytes &address, const std::optional<std::pair<std::string, int>> &listener,
                     uint64_t lanes_address, const nb::bytes &lanes_key, double deadline) {
        const std::string packed = text_of(address), key = text_of(lanes_key);
        nb::gil_scoped_release release;
        std::shared_ptr<ucx::Link> link;
        const uint64_t number = engine().call([&] {
            link = opened(packed, listener);
            return engine_->add(link);
        });
        try {
            ucx::Connect connect(*engine_, link, deadline);
            engine_->run(connect);
            engine_->check("connecting", connect.outcome());
            engine_->call([&] {
                link->lanes_address = lanes_address;
                engine_->check("the key of the lanes",
                               engine_->library().unpack_key(link->endpoint, key.data(), &link->lanes_key));
            });
        } catch (...) {
            engine_->call([&] { engine_->remove(number); });
            throw;
        }
        return number;
    }

    void disconnect(uint64_t number) {
        called([&] { engine_->remove(number); });
    }

    // A region at the end of a link, as its owner has told of it; `key` is empty where it has no bytes.
    uint64_t attach(uint64_t number, uint64_t slot, uint64_t generation, uint64_t address, const nb::bytes &key,
                    uint64_t word_address, const nb::bytes &word_key) {
        const std::string packed = text_of(key), word = text_of(word_key);
        return called([&] {
            const auto link = engine_->link(number);
            const auto &library = engine_->library();
            const std::shared_ptr<ucx::Region> region(
                new ucx::Region{library, slot, generation, address, word_address});
            engine_->check("the key of a word", library.unpack_key(link->endpoint, word.data(), &region->word_key));
            if (!packed.empty())
                engine_->check("the key of a region", library.unpack_key(link->endpoint, packed.data(), &region->key));
            const uint64_t name = ++last_;
            link->regions[name] = region;
            return name;
        });
    }

    void detach(uint64_t number, uint64_t region) {
        called([&] { engine_->link(number)->regions.erase(region); });
    }

    // (status, UCX's own where that is FAILED): IN_PROGRESS where the memory must be kept for good.
    std::pair<int, int> move(uint64_t number, uint64_t region, bool write, uint64_t offset, uint64_t length,
                             uint64_t local, int memory_type, const Stop &stop, double deadline, int control) {
        nb::gil_scoped_release release;
        auto move = engine().call([&] {
            return std::make_unique<ucx::Move>(*engine_, engine_->link(number), region, write, offset, length, local,
                                               memory_type, stop, deadline, control);
        });
        try {
            engine_->run(*move);
        } catch (...) {
            move.release(); // its keys are the engine's, which has ended
            throw;
        }
        const Outcome outcome = move->outcome();
        if (!move->is_stuck())
            return {outcome.status, outcome.error};
        move.release();
        return {FAILED, ucx::IN_PROGRESS};
    }

    std::pair<size_t, size_t> statistics() {
        return called([&] { return std::make_pair(engine_->links(), engine_->mapped()); });
    }

    void close() {
        nb::gil_scoped_release release;
        engine().close();
    }

    // In a forked child, which has not its thread: nothing of it may be touched any more, nor freed.
    void abandon() { new std::shared_ptr<ucx::Engine>(std::move(engine_)); }

  private:
    ucx::Engine &engine() const {
        if (!engine_)
            throw std::runtime_error("UCX is the parent's");
        return *engine_;
    }

    template <typename Work> auto called(Work work) -> decltype(work()) {
        nb::gil_scoped_release release;
        return engine().call(std::move(work));
    }

    std::shared_ptr<ucx::Link> opened(const std::string &packed,
                                      const std::optional<std::pair<std::string, int>> &listener) {
        using Parameters = ucx::EndpointParameters;
        auto link = std::make_shared<ucx::Link>();
        Parameters parameters = {};
        parameters.mask = Parameters::ERROR_MODE | Parameters::ON_ERROR;
        parameters.error_mode = Parameters::PEER_ERRORS;
        parameters.on_error = {reinterpret_cast<void *>(&ucx::Engine::on_error), link.get()};
        sockaddr_in where = {};
        if (listener) {
            where.sin_family = AF_INET, where.sin_port = htons(static_cast<uint16_t>(listener->second));
            if (inet_pton(AF_INET, listener->first.c_str(), &where.sin_addr) != 1)
                throw std::runtime_error("not an IPv4 address: " + listener->first);
            parameters.mask |= Parameters::SOCKET_ADDRESS | Parameters::FLAGS;
            parameters.flags = Parameters::CLIENT_SERVER;
            parameters.socket_address = {reinterpret_cast<sockaddr *>(&where), sizeof where};
        } else {
            parameters.mask |= Parameters::REMOTE_ADDRESS;
            parameters.address = reinterpret_cast<ucx::Address>(const_cast<char *>(packed.data()));
        }
        engine_->check("an endpoint", engine_->library().connect(engine_->worker(), &parameters, &link->endpoint));
        return link;
    }

    std::shared_ptr<ucx::Engine> engine_;
    uint64_t last_ = 0; // on the engine's thread
};

} // namespace

void add_ucx(nb::module_ &module) {
    module.attr("UCX_CANCELED") = nb::int_(static_cast<int>(ucx::CANCELED));
    module.attr("UCX_IN_PROGRESS") = nb::int_(static_cast<int>(ucx::IN_PROGRESS));
    nb::class_<Ucx>(module, "Ucx")
        .def(nb::init<const std::string &>(), "library"_a)
        .def_prop_ro("version", &Ucx::version)
        .def_prop_ro("memory_types", &Ucx::memory_types)
        .def_prop_ro("address", &Ucx::address)
        .def_prop_ro("statistics", &Ucx::statistics)
        .def("words", &Ucx::words, "status"_a)
        .def("listen", &Ucx::listen, "address"_a)
        .def("map", &Ucx::map, "address"_a, "length"_a, "read"_a, "write"_a, "memory_type"_a = 0)
        .def("unmap", &Ucx::unmap, "number"_a)
        .def("connect", &Ucx::connect, "address"_a, "listener"_a.none(), "lanes_address"_a, "lanes_key"_a, "deadline"_a)
        .def("disconnect", &Ucx::disconnect, "link"_a)
        .def("attach", &Ucx::attach, "link"_a, "slot"_a, "generation"_a, "address"_a, "key"_a, "word_address"_a,
             "word_key"_a)
        .def("detach", &Ucx::detach, "link"_a, "region"_a)
        .def("move", &Ucx::move, "link"_a, "region"_a, "write"_a, "offset"_a, "length"_a, "local"_a, "memory_type"_a,
             "stop"_a, "deadline"_a, "control"_a)
        .def("close", &Ucx::close)
        .def("abandon", &Ucx::abandon);
}
