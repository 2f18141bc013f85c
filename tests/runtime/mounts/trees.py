"""Trees made up by Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, LINK, Entry, Manifest, join

_names = st.one_of(
    st.sampled_from([b"a", b"b", b"c.py"]),
    st.binary(min_size=1, max_size=8).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")),
).filter(lambda name: name not in {b".", b".."})
_times = st.integers(-(2**62), 2**62)
_versions = st.integers(1, 2**63 - 1)
_modes = st.integers(0, 0o7777)
_none = st.just(b"")
_files = st.builds(Entry, st.just(FILE), _modes, st.integers(0, 2**50), _times, _versions, _none)
_targets = st.binary(min_size=1, max_size=20).map(lambda target: target.replace(b"\0", b"_"))
_links = st.builds(Entry, st.just(LINK), _modes, st.integers(0, 100), _times, _versions, _targets)
_directories = st.builds(Entry, st.just(DIRECTORY), _modes, st.just(0), _times, st.just(0), _none)


@st.composite
def manifests(draw: st.DrawFn, epoch: int = 1) -> Manifest:
    manifest = Manifest(epoch=epoch, revision=draw(st.integers(0, 2**40)), root=draw(_directories))
    paths = [b""]
    for _ in range(draw(st.integers(0, 12))):
        path = join(draw(st.sampled_from(paths)), draw(_names))
        if manifest.entry(path) is not None:
            continue
        entry = draw(st.one_of(_files, _links, _directories))
        manifest.put(path, entry)
        if entry.kind == DIRECTORY:
            paths.append(path)
    return manifest
