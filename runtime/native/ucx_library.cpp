#include "ucx_library.hpp"

#include <dlfcn.h>
#include <stdexcept>

namespace ucx {

std::shared_ptr<const Library> Library::open(const std::string &name) {
    // Never closed: it has threads' and other libraries' hooks by then.
    void *file = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!file)
        throw std::runtime_error(dlerror());
    auto library = std::make_shared<Library>();
    auto find = [&](auto &function, const char *symbol) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(file, symbol));
        if (!function)
            throw std::runtime_error(name + " is too old: it has no " + symbol);
    };
    find(library->get_version, "ucp_get_version");
    find(library->config_read, "ucp_config_read");
    find(library->config_release, "ucp_config_release");
    find(library->init, "ucp_init_version");
    find(library->cleanup, "ucp_cleanup");
    find(library->context_query, "ucp_context_query");
    find(library->worker_create, "ucp_worker_create");
    find(library->worker_destroy, "ucp_worker_destroy");
    find(library->worker_address, "ucp_worker_get_address");
    find(library->release_address, "ucp_worker_release_address");
    find(library->event_fd, "ucp_worker_get_efd");
    find(library->arm, "ucp_worker_arm");
    find(library->progress, "ucp_worker_progress");
    find(library->listen, "ucp_listener_create");
    find(library->listener_query, "ucp_listener_query");
    find(library->listener_destroy, "ucp_listener_destroy");
    find(library->connect, "ucp_ep_create");
    find(library->close, "ucp_ep_close_nbx");
    find(library->flush, "ucp_ep_flush_nbx");
    find(library->map, "ucp_mem_map");
    find(library->unmap, "ucp_mem_unmap");
    find(library->pack_key, "ucp_rkey_pack");
    find(library->release_key, "ucp_rkey_buffer_release");
    find(library->unpack_key, "ucp_ep_rkey_unpack");
    find(library->destroy_key, "ucp_rkey_destroy");
    find(library->get, "ucp_get_nbx");
    find(library->put, "ucp_put_nbx");
    find(library->check, "ucp_request_check_status");
    find(library->free, "ucp_request_free");
    find(library->status_string, "ucs_status_string");
    return library;
}

std::string Library::version() const {
    unsigned major, minor, patch;
    get_version(&major, &minor, &patch);
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

} // namespace ucx
