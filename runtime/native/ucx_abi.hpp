// What is used of UCX's binary interface (UCP 1.10 and later), so that building needs no UCX and the same module
// runs with and without it. Every structure begins with a mask of the fields that are given: the library reads no
// others, which is how it grows. `make test-native` compares this with UCX's own header where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/socket.h>

namespace ucx {

using Status = int8_t; // of one byte in the library too
using StatusPointer = void *;

constexpr Status OK = 0, IN_PROGRESS = 1, NO_MEMORY = -4, BUSY = -15, CANCELED = -16;
constexpr unsigned API_MAJOR = 1, API_MINOR = 10;

inline bool is_error(StatusPointer p) { return reinterpret_cast<uintptr_t>(p) >= static_cast<uintptr_t>(-100); }
inline Status status_of(StatusPointer p) { return static_cast<Status>(reinterpret_cast<intptr_t>(p)); }

using Context = struct ContextOpaque *;
using Config = struct ConfigOpaque *;
using Worker = struct WorkerOpaque *;
using Endpoint = struct EndpointOpaque *;
using Listener = struct ListenerOpaque *;
using Memory = struct MemoryOpaque *;
using RemoteKey = struct RemoteKeyOpaque *;
using Address = struct AddressOpaque *;
using Connection = struct ConnectionOpaque *;

constexpr uint64_t bit(int number) { return uint64_t{1} << number; }

constexpr uint64_t FEATURE_RMA = bit(1), FEATURE_WAKEUP = bit(4);

struct Parameters {
    static constexpr uint64_t FEATURES = bit(0);
    uint64_t mask;
    uint64_t features;
    size_t request_size;
    void *request_init, *request_cleanup;
    uint64_t tag_sender_mask;
    int mt_workers_shared;
    size_t estimated_num_eps, estimated_num_ppn;
    const char *name;
};

struct ContextAttributes {
    static constexpr uint64_t MEMORY_TYPES = bit(2);
    uint64_t mask;
    size_t request_size;
    int thread_mode;
    uint64_t memory_types;
    char name[64]; // and more than is asked for here
};

struct WorkerParameters {
    static constexpr uint64_t THREAD_MODE = bit(0);
    uint64_t mask;
    int thread_mode; // 0: one thread
    uint64_t cpu_mask[16];
    unsigned events;
    void *user_data;
    int event_fd;
    uint64_t flags;
    const char *name;
    size_t am_alignment;
    uint64_t client_id;
};

struct SocketAddress {
    const sockaddr *address;
    socklen_t length;
};

struct Handler {
    void *call;
    void *argument;
};
using OnError = void (*)(void *argument, Endpoint, Status);
using OnConnection = void (*)(Connection, void *argument);

struct ListenerParameters {
    static constexpr uint64_t ADDRESS = bit(0), ON_CONNECTION = bit(2);
    uint64_t mask;
    SocketAddress address;
    Handler on_accept;
    Handler on_connection;
};

struct ListenerAttributes {
    static constexpr uint64_t ADDRESS = bit(0);
    uint64_t mask;
    sockaddr_storage address;
};

struct EndpointParameters {
    static constexpr uint64_t REMOTE_ADDRESS = bit(0), ERROR_MODE = bit(1), ON_ERROR = bit(2), SOCKET_ADDRESS = bit(4),
                              FLAGS = bit(5), CONNECTION = bit(6);
    static constexpr int PEER_ERRORS = 1;
    static constexpr unsigned CLIENT_SERVER = bit(0);
    uint64_t mask;
    Address address;
    int error_mode;
    Handler on_error;
    void *user_data;
    unsigned flags;
    SocketAddress socket_address;
    Connection connection;
    const char *name;
    SocketAddress local_address;
};

struct MapParameters {
    static constexpr uint64_t ADDRESS = bit(0), LENGTH = bit(1), PROTECTION = bit(3), MEMORY_TYPE = bit(4);
    static constexpr unsigned LOCAL_READ = bit(0), LOCAL_WRITE = bit(1), REMOTE_READ = bit(8), REMOTE_WRITE = bit(9);
    uint64_t mask;
    void *address;
    size_t length;
    unsigned flags;
    unsigned protection;
    int memory_type;
};

struct RequestParameters {
    static constexpr uint32_t FLAGS = bit(4), MEMORY_TYPE = bit(6);
    static constexpr uint32_t CLOSE_BY_FORCE = bit(0);
    uint32_t mask;
    uint32_t flags;
    void *request;
    void *callback;
    uint64_t datatype;
    void *user_data;
    void *reply_buffer;
    int memory_type;
    void *receive_info;
    Memory memory;
};

} // namespace ucx
