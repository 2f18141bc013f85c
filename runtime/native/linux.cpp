// Linux calls that Python 3.11 lacks. Each raises OSError with the errno of the call.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/prctl.h>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

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

// Numbers of /proc/self/stat from field 26 on; the command before them may hold blanks and parentheses.
prctl_mm_map addresses_of_self() {
    char text[4096];
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        raise_os_error(errno, "/proc/self/stat");
    const ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    unsigned long long fields[53] = {};
    const char *at = strrchr(text, ')');
    at = at && at[1] ? at + 4 : text; // behind the state, a letter, which is field 3
    for (int field = 4; field <= 52; ++field) {
        char *end = nullptr;
        fields[field] = strtoull(at, &end, 10);
        at = end;
    }
    prctl_mm_map map = {};
    map.start_code = fields[26];
    map.end_code = fields[27];
    map.start_stack = fields[28];
    map.start_data = fields[45];
    map.end_data = fields[46];
    map.start_brk = fields[47];
    map.exe_fd = static_cast<__u32>(-1);
    return map;
}

// The strings lie one behind the other as the kernel would put them, and environ points to them: programs
// that write their title over them find what they look for. The memory is the process's for its life.
void take_image(nb::bytes arguments, nb::bytes variables) {
    const size_t arguments_size = arguments.size(), size = arguments_size + variables.size();
    const size_t table = (size + sizeof(char *) - 1) / sizeof(char *) * sizeof(char *);
    const auto *first = static_cast<const char *>(variables.data());
    const auto count = static_cast<size_t>(std::count(first, first + variables.size(), '\0'));
    const size_t whole = table + (count + 1) * sizeof(char *);
    // Private: of shared memory the kernel shows nothing there.
    void *area = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        raise_os_error(errno);
    auto *begin = static_cast<char *>(area);
    memcpy(begin, arguments.data(), arguments_size);
    memcpy(begin + arguments_size, first, variables.size());
    auto **pointers = reinterpret_cast<char **>(begin + table);
    char *at = begin + arguments_size;
    for (size_t variable = 0; variable < count; ++variable) {
        pointers[variable] = at;
        at += strlen(at) + 1;
    }
    prctl_mm_map map = addresses_of_self();
    map.arg_start = reinterpret_cast<__u64>(begin);
    map.arg_end = map.env_start = reinterpret_cast<__u64>(begin + arguments_size);
    map.env_end = reinterpret_cast<__u64>(begin + size);
    map.brk = reinterpret_cast<__u64>(sbrk(0));
    if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0UL) != 0) {
        const int error = errno;
        munmap(area, whole);
        raise_os_error(error);
    }
    environ = pointers;
}

// Fresh memory is faulted in by pages, which costs more than the copy: huge ones are asked for where the kernel
// has them. Nobody else sees the object before it is returned.
nb::bytes copied_to_bytes(nb::handle source) {
    constexpr uintptr_t huge = 2 * 1024 * 1024;
    Py_buffer view;
    if (PyObject_GetBuffer(source.ptr(), &view, PyBUF_SIMPLE) != 0)
        throw nb::python_error();
    PyObject *made = PyBytes_FromStringAndSize(nullptr, view.len);
    if (made == nullptr) {
        PyBuffer_Release(&view);
        throw nb::python_error();
    }
    char *target = PyBytes_AS_STRING(made);
    {
        nb::gil_scoped_release release;
        const auto begin = (reinterpret_cast<uintptr_t>(target) + huge - 1) & ~(huge - 1);
        const auto end = (reinterpret_cast<uintptr_t>(target) + view.len) & ~(huge - 1);
        if (begin < end)
            madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE); // no matter if it cannot
        memcpy(target, view.buf, view.len);
    }
    PyBuffer_Release(&view);
    return nb::steal<nb::bytes>(made);
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
    module.def("take_image", &take_image, "arguments"_a, "variables"_a);
    module.def("copied_to_bytes", &copied_to_bytes, "data"_a);
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
