// The host's own UCX, opened at run time.
#pragma once

#include <memory>
#include <string>

#include "ucx_abi.hpp"

namespace ucx {

struct Library {
    // Throws std::runtime_error with the loader's own words.
    static std::shared_ptr<const Library> open(const std::string &name);

    std::string version() const;
    const char *words(Status status) const { return status_string(status); }

    void (*get_version)(unsigned *, unsigned *, unsigned *);
    Status (*config_read)(const char *, const char *, Config *);
    void (*config_release)(Config);
    Status (*init)(unsigned, unsigned, const Parameters *, Config, Context *);
    void (*cleanup)(Context);
    Status (*context_query)(Context, ContextAttributes *);
    Status (*worker_create)(Context, const WorkerParameters *, Worker *);
    void (*worker_destroy)(Worker);
    Status (*worker_address)(Worker, Address *, size_t *);
    void (*release_address)(Worker, Address);
    Status (*event_fd)(Worker, int *);
    Status (*arm)(Worker);
    unsigned (*progress)(Worker);
    Status (*listen)(Worker, const ListenerParameters *, Listener *);
    Status (*listener_query)(Listener, ListenerAttributes *);
    void (*listener_destroy)(Listener);
    Status (*connect)(Worker, const EndpointParameters *, Endpoint *);
    StatusPointer (*close)(Endpoint, const RequestParameters *);
    StatusPointer (*flush)(Endpoint, const RequestParameters *);
    Status (*map)(Context, const MapParameters *, Memory *);
    Status (*unmap)(Context, Memory);
    Status (*pack_key)(Context, Memory, void **, size_t *);
    void (*release_key)(void *);
    Status (*unpack_key)(Endpoint, const void *, RemoteKey *);
    void (*destroy_key)(RemoteKey);
    StatusPointer (*get)(Endpoint, void *, size_t, uint64_t, RemoteKey, const RequestParameters *);
    StatusPointer (*put)(Endpoint, const void *, size_t, uint64_t, RemoteKey, const RequestParameters *);
    Status (*check)(void *);
    void (*free)(void *);
    const char *(*status_string)(Status);
};

} // namespace ucx
