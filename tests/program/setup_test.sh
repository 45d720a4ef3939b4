#!/bin/sh
# ./ddl setup, without a network: setup_test.sh SETUP_SCRIPT CASE. A pip of ours stands in for the real one.
set -u
setup=$1 case=$2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root" "$work/bin"
fail() { echo "FAILED: $*"; exit 1; }
run() { # the expected exit code, a text that must be said, then arguments
  code=$1 said=$2
  shift 2
  PATH=$work/bin:$PATH sh "$setup" "$work/root" "$@" >"$work/out" 2>&1
  found=$?
  [ $found = "$code" ] || fail "setup $*: exit $found, expected $code: $(cat "$work/out")"
  grep -q "$said" "$work/out" || fail "setup $*: expected '$said', found: $(cat "$work/out")"
}
pip_that() { # what its `download` does
  printf '#!/bin/sh\ncase "$*" in *--version*) exit 0 ;; esac\n%s\n' "$1" >"$work/bin/python3"
  chmod +x "$work/bin/python3"
}

case "$case" in
  says_what_there_is)
    run 0 "not installed" && run 0 "remove them" --help
    ;;
  refuses)
    run 2 "no part 'torhc'; expected torch, cuda or parquet" torhc
    run 2 "which part?" --remove
    ;;
  failed_download)
    pip_that 'echo "no network" >&2; exit 1'
    run 2 "continues with it" parquet
    grep -q "no network" "$work/out" || fail "the reason is not shown"
    [ ! -f "$work/root/build/parts/parquet.version" ] || fail "it counts as installed"
    ;;
  other_contents) # a wheel that is not the one with the hash is fetched anew, and what pip refuses is refused
    mkdir -p "$work/root/build/parts/downloads"
    echo damaged >"$work/root/build/parts/downloads/pyarrow-26.0.1-cp312.whl"
    pip_that 'echo "THESE PACKAGES DO NOT MATCH THE HASHES" >&2; exit 1'
    run 2 "DO NOT MATCH" parquet
    [ ! -f "$work/root/build/parts/downloads/pyarrow-26.0.1-cp312.whl" ] || fail "the damaged wheel is still there"
    ;;
  removes) # only what came with the part
    parts=$work/root/build/parts
    mkdir -p "$parts/torch/lib" "$parts/mine"
    echo x >"$parts/torch/lib/a.so" && echo x >"$parts/mine/file" && echo x >"$parts/torch.version"
    printf 'torch/\ntorch/lib/\ntorch/lib/a.so\n' >"$parts/torch.files"
    run 0 "torch is removed" --remove torch
    [ ! -e "$parts/torch" ] && [ ! -e "$parts/torch.version" ] || fail "still there"
    [ -f "$parts/mine/file" ] || fail "another file is gone"
    run 0 "torch is removed" --remove torch
    ;;
  *) fail "no case '$case'" ;;
esac
echo "passed: $case"
