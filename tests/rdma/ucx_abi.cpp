// Compares what Milkweed declares of UCX (runtime/native/ucx_abi.hpp) with UCX's own header. Compiling it is the test.

#include <type_traits>

#include <ucp/api/ucp.h>

#include "../../runtime/native/ucx_library.hpp"

#define SAME_FIELD(ours, our_field, theirs, their_field)                                                               \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                                       \
                  sizeof(std::declval<ours>().our_field) == sizeof(std::declval<theirs>().their_field))

static_assert(sizeof(ucx::Status) == sizeof(ucs_status_t));
static_assert(ucx::IN_PROGRESS == UCS_INPROGRESS && ucx::NO_MEMORY == UCS_ERR_NO_MEMORY && ucx::BUSY == UCS_ERR_BUSY &&
              ucx::CANCELED == UCS_ERR_CANCELED && UCS_ERR_LAST == -100);
static_assert(ucx::FEATURE_RMA == UCP_FEATURE_RMA && ucx::FEATURE_WAKEUP == UCP_FEATURE_WAKEUP);

SAME_FIELD(ucx::Parameters, mask, ucp_params_t, field_mask);
SAME_FIELD(ucx::Parameters, features, ucp_params_t, features);
static_assert(ucx::Parameters::FEATURES == UCP_PARAM_FIELD_FEATURES);

SAME_FIELD(ucx::ContextAttributes, memory_types, ucp_context_attr_t, memory_types);
static_assert(ucx::ContextAttributes::MEMORY_TYPES == UCP_ATTR_FIELD_MEMORY_TYPES);
static_assert(UCS_MEMORY_TYPE_HOST == 0 && UCS_MEMORY_TYPE_CUDA == 1 && UCS_MEMORY_TYPE_ROCM == 3);

SAME_FIELD(ucx::WorkerParameters, thread_mode, ucp_worker_params_t, thread_mode);
static_assert(sizeof(ucx::WorkerParameters) >= offsetof(ucp_worker_params_t, client_id));
static_assert(ucx::WorkerParameters::THREAD_MODE == UCP_WORKER_PARAM_FIELD_THREAD_MODE && UCS_THREAD_MODE_SINGLE == 0);

SAME_FIELD(ucx::SocketAddress, address, ucs_sock_addr_t, addr);
SAME_FIELD(ucx::SocketAddress, length, ucs_sock_addr_t, addrlen);

SAME_FIELD(ucx::ListenerParameters, address, ucp_listener_params_t, sockaddr);
SAME_FIELD(ucx::ListenerParameters, on_connection, ucp_listener_params_t, conn_handler);
static_assert(ucx::ListenerParameters::ADDRESS == UCP_LISTENER_PARAM_FIELD_SOCK_ADDR &&
              ucx::ListenerParameters::ON_CONNECTION == UCP_LISTENER_PARAM_FIELD_CONN_HANDLER);
SAME_FIELD(ucx::ListenerAttributes, address, ucp_listener_attr_t, sockaddr);
static_assert(ucx::ListenerAttributes::ADDRESS == UCP_LISTENER_ATTR_FIELD_SOCKADDR);

SAME_FIELD(ucx::EndpointParameters, address, ucp_ep_params_t, address);
SAME_FIELD(ucx::EndpointParameters, error_mode, ucp_ep_params_t, err_mode);
SAME_FIELD(ucx::EndpointParameters, on_error, ucp_ep_params_t, err_handler);
SAME_FIELD(ucx::EndpointParameters, flags, ucp_ep_params_t, flags);
SAME_FIELD(ucx::EndpointParameters, socket_address, ucp_ep_params_t, sockaddr);
SAME_FIELD(ucx::EndpointParameters, connection, ucp_ep_params_t, conn_request);
static_assert(ucx::EndpointParameters::REMOTE_ADDRESS == UCP_EP_PARAM_FIELD_REMOTE_ADDRESS &&
              ucx::EndpointParameters::ERROR_MODE == UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE &&
              ucx::EndpointParameters::ON_ERROR == UCP_EP_PARAM_FIELD_ERR_HANDLER &&
              ucx::EndpointParameters::SOCKET_ADDRESS == UCP_EP_PARAM_FIELD_SOCK_ADDR &&
              ucx::EndpointParameters::FLAGS == UCP_EP_PARAM_FIELD_FLAGS &&
              ucx::EndpointParameters::CONNECTION == UCP_EP_PARAM_FIELD_CONN_REQUEST &&
              ucx::EndpointParameters::PEER_ERRORS == UCP_ERR_HANDLING_MODE_PEER &&
              ucx::EndpointParameters::CLIENT_SERVER == UCP_EP_PARAMS_FLAGS_CLIENT_SERVER);

SAME_FIELD(ucx::MapParameters, address, ucp_mem_map_params_t, address);
SAME_FIELD(ucx::MapParameters, length, ucp_mem_map_params_t, length);
SAME_FIELD(ucx::MapParameters, protection, ucp_mem_map_params_t, prot);
SAME_FIELD(ucx::MapParameters, memory_type, ucp_mem_map_params_t, memory_type);
static_assert(ucx::MapParameters::ADDRESS == UCP_MEM_MAP_PARAM_FIELD_ADDRESS &&
              ucx::MapParameters::LENGTH == UCP_MEM_MAP_PARAM_FIELD_LENGTH &&
              ucx::MapParameters::PROTECTION == UCP_MEM_MAP_PARAM_FIELD_PROT &&
              ucx::MapParameters::MEMORY_TYPE == UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE &&
              ucx::MapParameters::LOCAL_READ == UCP_MEM_MAP_PROT_LOCAL_READ &&
              ucx::MapParameters::LOCAL_WRITE == UCP_MEM_MAP_PROT_LOCAL_WRITE &&
              ucx::MapParameters::REMOTE_READ == UCP_MEM_MAP_PROT_REMOTE_READ &&
              ucx::MapParameters::REMOTE_WRITE == UCP_MEM_MAP_PROT_REMOTE_WRITE);

SAME_FIELD(ucx::RequestParameters, mask, ucp_request_param_t, op_attr_mask);
SAME_FIELD(ucx::RequestParameters, flags, ucp_request_param_t, flags);
SAME_FIELD(ucx::RequestParameters, memory_type, ucp_request_param_t, memory_type);
static_assert(ucx::RequestParameters::FLAGS == UCP_OP_ATTR_FIELD_FLAGS &&
              ucx::RequestParameters::MEMORY_TYPE == UCP_OP_ATTR_FIELD_MEMORY_TYPE &&
              ucx::RequestParameters::CLOSE_BY_FORCE == UCP_EP_CLOSE_FLAG_FORCE);
