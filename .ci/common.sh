# What the scripts of this folder share; they source it from the repository's root.
step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }
# need COMMAND PACKAGE...: installs the packages where the command is missing.
need() { command -v "$1" >/dev/null || apt-get install -y --no-install-recommends "${@:2}" >/dev/null; }
# clang with its OpenMP library, and in that Archer, which tells the thread sanitizer how OpenMP synchronises.
need_clang() {
  need clang++ clang
  ls /usr/lib/llvm-*/lib/libarcher.so >/dev/null 2>&1 || apt-get install -y --no-install-recommends libomp-dev >/dev/null
}
