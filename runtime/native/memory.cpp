// One-sided transfers between processes of one host: the table in which a process publishes its regions, and
// the eyes of another process on it.
//
// A region is safe to touch while its reader holds a shared lock on the region's range of the table's file and
// has seen the region's generation since: whoever drops the region changes the generation first and then waits
// until nobody holds such a lock. The kernel takes the locks of a process that dies. The owner holds a lock of
// its own for its life, which tells that the process behind a pid is still the one that made the table.

#include "memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

using namespace nb::literals;

namespace {

constexpr uint64_t MAGIC = 0x31304d454d574d4bULL; // of this layout
constexpr size_t KEY_SIZE = 16;
constexpr off_t LIFE_AT = 0;
constexpr off_t REGIONS_AT = off_t{1} << 32;
constexpr int TICKET_BITS = 20; // so many transfers of one process from one region at once
constexpr size_t CHUNK = size_t{1} << 20; // what is moved between two looks at the stop and the clock
constexpr size_t HEADER_SIZE = 4096;

enum Rights : uint32_t { READ = 1, WRITE = 2 };

struct Header {
    uint64_t magic;
    uint64_t slots;
    unsigned char token[KEY_SIZE];
};

// One region. An odd generation is a live one; what follows it is written before it becomes that.
struct Slot {
    std::atomic<uint64_t> generation;
    uint64_t address;
    uint64_t length;
    unsigned char key[KEY_SIZE];
    uint32_t rights;
    int32_t fd; // of the memory itself where it is a file of its own, else -1
    uint64_t unused[2];
};
static_assert(sizeof(Slot) == 64 && std::atomic<uint64_t>::is_always_lock_free);

[[noreturn]] void raise_os_error(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

struct File {
    int fd = -1;
    explicit File(int fd) : fd(fd) {}
    File(const File &) = delete;
    ~File() { close(); }
    void close() {
        if (fd >= 0)
            ::close(fd);
        fd = -1;
    }
};

struct Mapping {
    char *begin = nullptr;
    size_t size = 0;
    Mapping() = default;
    Mapping(const Mapping &) = delete;
    ~Mapping() { close(); }
    int open(int fd, size_t length, int protection, int flags) {
        void *area = mmap(nullptr, length, protection, MAP_SHARED | flags, fd, 0);
        if (area == MAP_FAILED)
            return errno;
        begin = static_cast<char *>(area), size = length;
        return 0;
    }
    void close() {
        if (begin)
            munmap(begin, size);
        begin = nullptr;
    }
};

int lock(int fd, int command, short type, off_t start, off_t length, struct flock *found = nullptr) {
    struct flock wanted = {};
    wanted.l_type = type;
    wanted.l_whence = SEEK_SET;
    wanted.l_start = start;
    wanted.l_len = length;
    int result;
    do
        result = fcntl(fd, command, &wanted);
    while (result != 0 && errno == EINTR);
    if (found)
        *found = wanted;
    return result == 0 ? 0 : errno;
}

off_t range_of(uint64_t slot) { return REGIONS_AT + (static_cast<off_t>(slot) << TICKET_BITS); }

void checked(int error) {
    if (error)
        raise_os_error(error);
}

std::vector<unsigned char> exactly(const nb::bytes &value) {
    if (value.size() != KEY_SIZE)
        throw nb::value_error("a key or token has 16 bytes");
    const auto *first = static_cast<const unsigned char *>(value.data());
    return {first, first + KEY_SIZE};
}

// What a process publishes: in a memfd, which others open through /proc/PID/fd.
class Table {
  public:
    Table(uint64_t slots, const nb::bytes &token)
        : file_(memfd_create("milkweed-regions", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
        const auto name = exactly(token);
        if (file_.fd < 0)
            raise_os_error(errno);
        const size_t size = HEADER_SIZE + slots * sizeof(Slot);
        // Sealed, so that it cannot become shorter below those who have it mapped.
        if (ftruncate(file_.fd, static_cast<off_t>(size)) != 0 ||
            fcntl(file_.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
            raise_os_error(errno);
        checked(memory_.open(file_.fd, size, PROT_READ | PROT_WRITE, MAP_NORESERVE));
        // The process's, not the open file's: a forked child has no part in it.
        checked(lock(file_.fd, F_SETLK, F_WRLCK, LIFE_AT, 1));
        auto *header = reinterpret_cast<Header *>(memory_.begin);
        header->slots = slots;
        memcpy(header->token, name.data(), KEY_SIZE);
        header->magic = MAGIC;
    }

    int fd() const { return file_.fd; }

    uint64_t publish(uint64_t slot, uint64_t address, uint64_t length, uint32_t rights, const nb::bytes &key,
                     int fd) {
        const auto secret = exactly(key);
        Slot &entry = at(slot);
        const uint64_t generation = entry.generation.load() + 1;
        if (generation % 2 == 0)
            throw nb::value_error("the slot is taken");
        entry.address = address, entry.length = length, entry.rights = rights, entry.fd = fd;
        memcpy(entry.key, secret.data(), KEY_SIZE);
        entry.generation.store(generation);
        return generation;
    }

    void retire(uint64_t slot) {
        Slot &entry = at(slot);
        const uint64_t generation = entry.generation.load();
        if (generation % 2 == 1)
            entry.generation.store(generation + 1);
    }

    bool is_quiet(uint64_t slot) {
        at(slot);
        const off_t length = off_t{1} << TICKET_BITS;
        const int error = lock(file_.fd, F_OFD_SETLK, F_WRLCK, range_of(slot), length);
        if (error == EAGAIN || error == EACCES)
            return false;
        checked(error);
        checked(lock(file_.fd, F_OFD_SETLK, F_UNLCK, range_of(slot), length));
        return true;
    }

    void close() {
        memory_.close();
        file_.close();
    }

  private:
    Slot &at(uint64_t slot) {
        if (!memory_.begin)
            throw nb::value_error("the table is closed");
        if (slot >= reinterpret_cast<Header *>(memory_.begin)->slots)
            throw nb::index_error("no such slot");
        return reinterpret_cast<Slot *>(memory_.begin + HEADER_SIZE)[slot];
    }

    File file_;
    Mapping memory_;
};

// Calls move(offset, length) for all of it, in chunks, on several threads; the first that fails ends all.
template <typename Move>
Outcome in_chunks(size_t length, int threads, const Stop &stop, double deadline, const Move &move) {
    std::atomic<bool> over{false};
    std::mutex mutex;
    Outcome outcome;
    auto end = [&](Outcome how) {
        const std::lock_guard<std::mutex> guard(mutex);
        if (outcome.status == DONE)
            outcome = how;
        over = true;
    };
    // Whoever is free takes the next chunk: a thread that the machine holds up keeps no other waiting.
    std::atomic<size_t> next{0};
    auto run = [&] {
        for (size_t at; !over && (at = next.fetch_add(CHUNK)) < length;) {
            if (stop.is_set())
                return end({STOPPED, 0});
            if (now() > deadline)
                return end({LATE, 0});
            if (const Outcome how = move(at, std::min(CHUNK, length - at)); how.status != DONE)
                return end(how);
        }
    };
    std::vector<std::thread> others;
    const size_t wanted = std::min(static_cast<size_t>(std::max(1, threads)), (length + CHUNK - 1) / CHUNK);
    others.reserve(wanted);
    try {
        while (others.size() + 1 < wanted)
            others.emplace_back(run);
    } catch (const std::exception &) { // no more threads to be had: these do all of it
    }
    run();
    for (auto &other : others)
        other.join();
    return outcome;
}

Outcome move_by_process_vm(pid_t pid, bool write, char *local, uint64_t remote, size_t length) {
    for (size_t moved = 0; moved < length;) {
        iovec here = {local + moved, length - moved};
        iovec there = {reinterpret_cast<void *>(remote + moved), length - moved};
        const ssize_t count = write ? process_vm_writev(pid, &here, 1, &there, 1, 0)
                                    : process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (count < 0 && errno == ESRCH)
            return {OWNER_LOST, 0};
        if (count < 0 && errno != EINTR)
            return {FAILED, errno};
        if (count == 0)
            return {FAILED, EFAULT};
        moved += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    return {};
}

// Another process's table, and what lies behind it.
class Peer {
  public:
    // Raises OSError: ESRCH where the owner is gone, the reason where its table cannot be reached.
    Peer(pid_t pid, int fd, const nb::bytes &token) : pid_(pid), file_(open_of(pid, fd, O_RDONLY)) {
        const int error = errno;
        const auto name = exactly(token);
        if (file_.fd < 0)
            raise_os_error(error == ENOENT ? ESRCH : error);
        struct stat found;
        Header header;
        // Somebody else's file may have that number by now.
        if (fstat(file_.fd, &found) != 0 || pread(file_.fd, &header, sizeof header, 0) != sizeof header ||
            header.magic != MAGIC || memcmp(header.token, name.data(), KEY_SIZE) != 0 ||
            found.st_size != static_cast<off_t>(HEADER_SIZE + header.slots * sizeof(Slot)))
            raise_os_error(ESRCH);
        slots_ = header.slots;
        checked(memory_.open(file_.fd, static_cast<size_t>(found.st_size), PROT_READ, MAP_NORESERVE));
    }

    bool is_alive() const { return is_alive_; }

    // By process_vm_readv and process_vm_writev; (status, errno).
    std::pair<int, int> move(uint64_t slot, uint64_t generation, const nb::bytes &key, bool write,
                             uint64_t offset, uint64_t length, uint64_t local, int threads, const Stop &stop,
                             double deadline) {
        const auto secret = exactly(key);
        nb::gil_scoped_release release;
        const Use use(*this);
        return locked(slot, generation, secret, write, offset, length, [&](const Slot &entry) {
            const uint64_t remote = entry.address + offset;
            return in_chunks(length, threads, stop, deadline, [&](size_t at, size_t size) -> Outcome {
                if (!owner_lives()) // its pid may be somebody else's by now
                    return {OWNER_LOST, 0};
                return move_by_process_vm(pid_, write, reinterpret_cast<char *>(local) + at, remote + at, size);
            });
        });
    }

    // By a mapping of the memory's own file, which is kept for the next time; (status, errno).
    std::pair<int, int> copy(uint64_t slot, uint64_t generation, const nb::bytes &key, bool write,
                             uint64_t offset, uint64_t length, uint64_t local, int threads, const Stop &stop,
                             double deadline) {
        const auto secret = exactly(key);
        nb::gil_scoped_release release;
        const Use use(*this);
        return locked(slot, generation, secret, write, offset, length, [&](const Slot &entry) -> Outcome {
            std::shared_ptr<Mapping> mapping;
            if (const int error = mapped(slot, generation, entry, mapping))
                return {error == ESRCH ? OWNER_LOST : FAILED, error};
            auto *here = reinterpret_cast<char *>(local), *there = mapping->begin + offset;
            return in_chunks(length, threads, stop, deadline, [&](size_t at, size_t size) -> Outcome {
                memcpy(write ? there + at : here + at, write ? here + at : there + at, size);
                return {};
            });
        });
    }

    size_t mappings() {
        const std::lock_guard<std::mutex> guard(mutex_);
        return mappings_.size();
    }

    // No transfer begins any more. Those under way keep the file, and with it the lock on what they move. In a
    // forked child there are none: the locks are the parent's.
    void close() {
        closed_ = true;
        if (users_ == 0 || getpid() != made_by_)
            close_file();
    }

  private:
    class Use {
      public:
        explicit Use(Peer &peer) : peer_(peer) { ++peer_.users_; }
        Use(const Use &) = delete;
        ~Use() {
            if (--peer_.users_ == 0 && peer_.closed_)
                peer_.close_file();
        }

      private:
        Peer &peer_;
    };

    void close_file() {
        if (!file_closed_.exchange(true))
            file_.close();
    }

    struct Kept {
        uint64_t generation;
        std::shared_ptr<Mapping> mapping;
    };

    static int open_of(pid_t pid, int fd, int flags) {
        const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
        return open(path.c_str(), flags | O_CLOEXEC);
    }

    const Slot &at(uint64_t slot) const {
        return reinterpret_cast<const Slot *>(memory_.begin + HEADER_SIZE)[slot];
    }

    bool owner_lives() {
        struct flock found;
        const bool held = lock(file_.fd, F_OFD_GETLK, F_WRLCK, LIFE_AT, 1, &found) == 0 && found.l_type != F_UNLCK;
        if (!held)
            is_alive_ = false;
        return held;
    }

    template <typename Work>
    std::pair<int, int> locked(uint64_t slot, uint64_t generation, const std::vector<unsigned char> &key, bool write,
                               uint64_t offset, uint64_t length, const Work &work) {
        if (closed_)
            return {OWNER_LOST, 0};
        if (slot >= slots_)
            return {DROPPED, 0};
        const off_t ticket = range_of(slot) + (tickets_.fetch_add(1) & ((1 << TICKET_BITS) - 1));
        while (const int error = lock(file_.fd, F_OFD_SETLK, F_RDLCK, ticket, 1)) {
            if (error != EAGAIN && error != EACCES)
                return {FAILED, error};
            // The owner looks at this moment whether the region is quiet: it has been dropped.
            if (at(slot).generation.load() != generation)
                return {DROPPED, 0};
            std::this_thread::yield();
        }
        Outcome outcome = check(slot, generation, key, write, offset, length);
        if (outcome.status == DONE) {
            outcome = work(at(slot));
            // The owner may have died, or become another program, below the transfer: it moved who knows what.
            if (!owner_lives())
                outcome = {OWNER_LOST, 0};
        }
        lock(file_.fd, F_OFD_SETLK, F_UNLCK, ticket, 1);
        return {outcome.status, outcome.error};
    }

    Outcome check(uint64_t slot, uint64_t generation, const std::vector<unsigned char> &key, bool write,
                  uint64_t offset, uint64_t length) {
        const Slot &entry = at(slot);
        if (!owner_lives())
            return {OWNER_LOST, 0};
        if (entry.generation.load() != generation || generation % 2 == 0)
            return {DROPPED, 0};
        if (memcmp(entry.key, key.data(), KEY_SIZE) != 0)
            return {WRONG_KEY, 0};
        if (offset > entry.length || length > entry.length - offset)
            return {OUT_OF_RANGE, 0};
        if (!(entry.rights & (write ? WRITE : READ)))
            return {FORBIDDEN, 0};
        return {};
    }

    int mapped(uint64_t slot, uint64_t generation, const Slot &entry, std::shared_ptr<Mapping> &found) {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (const auto kept = mappings_.find(slot); kept != mappings_.end() && kept->second.generation == generation) {
            found = kept->second.mapping;
            return 0;
        }
        if (entry.fd < 0)
            return EOPNOTSUPP;
        const bool writable = entry.rights & WRITE;
        const File file(open_of(pid_, entry.fd, writable ? O_RDWR : O_RDONLY));
        if (file.fd < 0)
            return errno == ENOENT ? ESRCH : errno;
        struct stat status;
        if (fstat(file.fd, &status) != 0)
            return errno;
        if (static_cast<uint64_t>(status.st_size) < entry.length)
            return ESRCH;
        found = std::make_shared<Mapping>();
        const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
        if (const int error = found->open(file.fd, entry.length, protection, 0))
            return error;
        // Those of dropped regions go now: one that is still in use ends with its use.
        for (auto at_kept = mappings_.begin(); at_kept != mappings_.end();)
            at_kept = at(at_kept->first).generation.load() == at_kept->second.generation ? std::next(at_kept)
                                                                                         : mappings_.erase(at_kept);
        mappings_[slot] = {generation, found};
        return 0;
    }

    const pid_t pid_;
    const pid_t made_by_ = getpid();
    File file_;
    Mapping memory_;
    uint64_t slots_ = 0;
    std::atomic<int> users_{0};
    std::atomic<bool> closed_{false}, file_closed_{false};
    std::atomic<uint64_t> tickets_{0};
    std::atomic<bool> is_alive_{true};
    std::mutex mutex_;
    std::map<uint64_t, Kept> mappings_;
};

std::pair<int, int> copy_here(uint64_t to, uint64_t from, uint64_t length, int threads, const Stop &stop,
                              double deadline) {
    nb::gil_scoped_release release;
    const Outcome outcome = in_chunks(length, threads, stop, deadline, [&](size_t at, size_t size) -> Outcome {
        memmove(reinterpret_cast<char *>(to) + at, reinterpret_cast<const char *>(from) + at, size);
        return {};
    });
    return {outcome.status, outcome.error};
}

uint64_t address_of(nb::handle buffer) {
    Py_buffer view;
    if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    const auto address = reinterpret_cast<uint64_t>(view.buf);
    PyBuffer_Release(&view);
    return address;
}

} // namespace

NB_MODULE(_native_memory, module) {
    module.doc() = "One-sided transfers between processes of one host.";
    // The node and its daemon threads live as long as the interpreter, and hold some of these to its end.
    nb::set_leak_warnings(false);
    module.def("address_of", &address_of, "buffer"_a);
    module.def("fence", [] { std::atomic_thread_fence(std::memory_order_seq_cst); });
    module.def("copy", &copy_here, "to"_a, "source"_a, "length"_a, "threads"_a, "stop"_a, "deadline"_a);

    nb::class_<Stop>(module, "Stop").def(nb::init<>()).def("set", &Stop::set).def("is_set", &Stop::is_set);

    nb::class_<Table>(module, "Table")
        .def(nb::init<uint64_t, const nb::bytes &>(), "slots"_a, "token"_a)
        .def_prop_ro("fd", &Table::fd)
        .def("publish", &Table::publish, "slot"_a, "address"_a, "length"_a, "rights"_a, "key"_a, "fd"_a = -1)
        .def("retire", &Table::retire, "slot"_a)
        .def("is_quiet", &Table::is_quiet, "slot"_a)
        .def("close", &Table::close);

    nb::class_<Peer>(module, "Peer")
        .def(nb::init<pid_t, int, const nb::bytes &>(), "pid"_a, "fd"_a, "token"_a)
        .def_prop_ro("is_alive", &Peer::is_alive)
        .def_prop_ro("mappings", &Peer::mappings)
        .def("move", &Peer::move, "slot"_a, "generation"_a, "key"_a, "write"_a, "offset"_a, "length"_a, "local"_a,
             "threads"_a, "stop"_a, "deadline"_a)
        .def("copy", &Peer::copy, "slot"_a, "generation"_a, "key"_a, "write"_a, "offset"_a, "length"_a, "local"_a,
             "threads"_a, "stop"_a, "deadline"_a)
        .def("close", &Peer::close);

    add_streams(module);
    add_zero_copy(module);
    add_ucx(module);

    auto constant = [&](const char *name, int value) { module.attr(name) = nb::int_(value); };
    constant("DONE", DONE);
    constant("DROPPED", DROPPED);
    constant("WRONG_KEY", WRONG_KEY);
    constant("OUT_OF_RANGE", OUT_OF_RANGE);
    constant("FORBIDDEN", FORBIDDEN);
    constant("OWNER_LOST", OWNER_LOST);
    constant("STOPPED", STOPPED);
    constant("LATE", LATE);
    constant("FAILED", FAILED);
    constant("READ", READ);
    constant("WRITE", WRITE);
}
