// Linux calls that Python 3.11 lacks. Each raises OSError with the errno of the call.

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/prctl.h>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

[[noreturn]] void raise_os_error(int error, const char *path = nullptr) {
    errno = error;
    if (path)
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    else
        PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

// Runs a call without the GIL, again when a signal interrupted it (handlers run first, as in PEP 475),
// and raises its errno. The errno is kept before the GIL is taken back, which may overwrite it.
template <typename Call> void checked(Call call, const char *path = nullptr) {
    for (;;) {
        int error = 0;
        {
            nb::gil_scoped_release release;
            if (call() != 0)
                error = errno;
        }
        if (error == 0)
            return;
        if (error != EINTR)
            raise_os_error(error, path);
        if (PyErr_CheckSignals() != 0)
            throw nb::python_error();
    }
}

void set_child_subreaper(bool enabled) {
    if (prctl(PR_SET_CHILD_SUBREAPER, enabled ? 1UL : 0UL, 0UL, 0UL, 0UL) != 0)
        raise_os_error(errno);
}

bool is_child_subreaper() {
    int enabled = 0;
    if (prctl(PR_GET_CHILD_SUBREAPER, &enabled, 0UL, 0UL, 0UL) != 0)
        raise_os_error(errno);
    return enabled != 0;
}

void punch_hole(int fd, long long offset, long long length) {
    checked([=] { return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length); });
}

// Namespaces belong to a thread: the GIL is released, the thread stays the caller's.
void unshare_namespaces(int flags) {
    checked([=] { return unshare(flags); });
}

void enter_namespace(int fd, int nstype) {
    checked([=] { return setns(fd, nstype); });
}

const char *text(const std::optional<std::string> &value) { return value ? value->c_str() : nullptr; }

void mount_file_system(const std::optional<std::string> &source, const std::string &target,
                       const std::optional<std::string> &fstype, unsigned long flags,
                       const std::optional<std::string> &data) {
    checked([&] { return mount(text(source), target.c_str(), text(fstype), flags, text(data)); },
            target.c_str());
}

void unmount_file_system(const std::string &target, int flags) {
    checked([&] { return umount2(target.c_str(), flags | UMOUNT_NOFOLLOW); }, target.c_str());
}

} // namespace

NB_MODULE(_native, module) {
    module.doc() = "Linux calls that Python's standard library lacks.";
    module.def("set_child_subreaper", &set_child_subreaper, "enabled"_a = true);
    module.def("is_child_subreaper", &is_child_subreaper);
    module.def("punch_hole", &punch_hole, "fd"_a, "offset"_a, "length"_a);
    module.def("unshare", &unshare_namespaces, "flags"_a);
    module.def("setns", &enter_namespace, "fd"_a, "nstype"_a = 0);
    module.def("mount", &mount_file_system, "source"_a.none(), "target"_a, "fstype"_a.none() = nb::none(),
               "flags"_a = 0, "data"_a.none() = nb::none());
    module.def("umount", &unmount_file_system, "target"_a, "flags"_a = 0);

    auto constant = [&](const char *name, unsigned long value) { module.attr(name) = nb::int_(value); };
    constant("CLONE_NEWNS", CLONE_NEWNS);
    constant("CLONE_NEWUTS", CLONE_NEWUTS);
    constant("CLONE_NEWIPC", CLONE_NEWIPC);
    constant("CLONE_NEWUSER", CLONE_NEWUSER);
    constant("CLONE_NEWPID", CLONE_NEWPID);
    constant("CLONE_NEWNET", CLONE_NEWNET);
    constant("CLONE_NEWCGROUP", CLONE_NEWCGROUP);
    constant("MS_RDONLY", MS_RDONLY);
    constant("MS_NOSUID", MS_NOSUID);
    constant("MS_NODEV", MS_NODEV);
    constant("MS_NOEXEC", MS_NOEXEC);
    constant("MS_REMOUNT", MS_REMOUNT);
    constant("MS_BIND", MS_BIND);
    constant("MS_MOVE", MS_MOVE);
    constant("MS_REC", MS_REC);
    constant("MS_PRIVATE", MS_PRIVATE);
    constant("MS_SLAVE", MS_SLAVE);
    constant("MS_SHARED", MS_SHARED);
    constant("MNT_FORCE", MNT_FORCE);
    constant("MNT_DETACH", MNT_DETACH);
}
