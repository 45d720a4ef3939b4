# What the scripts of this folder share; they source it from the repository's root.
step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }
install() {
  [ -n "${lists_are_new:-}" ] || { apt-get update >/dev/null && lists_are_new=1; }
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >/dev/null
}
# need COMMAND PACKAGE...: installs the packages where the command is missing.
need() { command -v "$1" >/dev/null || install "${@:2}"; }
# clang with its OpenMP library, and in that Archer, which tells the thread sanitizer how OpenMP synchronises.
need_clang() {
  need clang++ clang
  ls /usr/lib/llvm-*/lib/libarcher.so >/dev/null 2>&1 || install libomp-dev
}
