# shellcheck shell=bash
# How the scripts install Debian packages. To be sourced, with LOG (takes apt's words) and the function `say` defined.

as_root() {
    if [[ $EUID -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || sudo -n true 2>/dev/null; }
}

# Installs packages with as little around them as can be. Fails where that is not allowed, or does not succeed.
apt_install() {
    may_install || return 1
    say "apt-get install $*"
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get install -qq -y --no-install-recommends "$@" >>"$LOG" 2>&1 && return
    as_root apt-get update -qq >>"$LOG" 2>&1 || true
    as_root apt-get install -qq -y --no-install-recommends "$@" >>"$LOG" 2>&1 && return
    say "apt-get could not install them; its words are in $LOG"
    return 1
}
