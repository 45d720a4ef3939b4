#!/bin/sh
# ./ddl setup: the optional parts, from PyPI's wheels at exact versions and with their hashes, unpacked below build/parts.
# docs/scale.md says what lies where. $1 is the repository; the rest is what follows "./ddl setup".
set -eu
root=$1
shift
parts=$root/build/parts
wheels=$parts/downloads

# What a part is made of: package, version, SHA-256 of the wheel for x86_64, what to unpack of it. A wheel belongs to one part.
contents() {
  case "$1" in
    torch) cat <<'LIST' ;;
torch 2.15.0 6d8c86f4e33a9f12a58149bd9b0d64351632b8eb44479be8ff85e5389932dd79 torch/include torch/lib
nvidia-cuda-runtime 13.2.86 3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0 nvidia
nvidia-cuda-cupti 13.2.86 8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586 nvidia
LIST
    cuda) cat <<'LIST' ;;
nvidia-cuda-nvcc 13.2.86 7d3f56c8d705bad35bbba69eb0470d90856fd5d4dc48c6a6173aaf1e9f887cf5 nvidia
nvidia-cuda-crt 13.2.86 e3ab08801bf9b1e6dc979275d25e816bb5000521b648e19c324d5eef0c79f1da nvidia
nvidia-nvvm 13.2.86 a9244f3209922d655612c11ebb4117ea1f80983cb2b215c9cccded127282cebc nvidia
nvidia-cuda-cccl 13.2.86 35da671cf0cecd3539da214a11bb8e7634366c9e950da9c5feecf6c490a65b20 nvidia
nvidia-cuda-nvrtc 13.2.86 8111c5130e967b78222ea2124145f8efe9ce201b752b2579a2513100a53be1c5 nvidia
nvidia-nvjitlink 13.2.86 285a9cead9924391588d794400bdd7e8f9d1a277a7d78ed79acfa0ea702a14dd nvidia
nvidia-nvtx 13.2.86 968ce72baee2a01791c7d3254000eac81f24677b0b91c62d21b449a1f309c245 nvidia
nvidia-cublas 13.4.1.3 a5917cb642cfb07f4a0231ee16aec7e2e0357d8cb8b1b78a0c9c68dba3e6afc7 nvidia
nvidia-cufft 12.2.0.57 34da27fadf3979b0b042c43823f0530be8408b86df31ee0108e1ca0b621d4ef6 nvidia
nvidia-cufile 1.17.1.22 87feaf8c3ad20d3d03a01933181801ff6892bace5c8f0b1e4b48f319d3e62d36 nvidia
nvidia-cusolver 12.2.0.11 fab5778f6769947389a1a6abc07e635576825a08c0ffc68c3ae7f1392c794b42 nvidia
nvidia-cusparse 12.7.10.12 25907c75e4db1581685f06f61cc6cdecc04611765516a52373e0a18ebd69fa00 nvidia
nvidia-cudnn-cu13 9.26.0.51 9c976d539786698c71d6bcdbe2053b7485fae062ff7e1215d2f2ff67b1a2149a nvidia
nvidia-cusparselt-cu13 0.8.1 786ce87568c303fadb5afcc7102d454cd3040d75f6f8626f5db460d1871f4dd0 nvidia
nvidia-nccl-cu13 2.30.7 cefa7fdb9710efd0f39c5f1be1d61ff6fc9a996c451265bd7fbdcf9455ed4b50 nvidia
nvidia-nvshmem-cu13 3.7.2 b9a4f843c62b5dded8ad33fd6d220e007dcd39f06cee549292f5ba14ce4c235c nvidia
LIST
    parquet) cat <<'LIST' ;;
pyarrow 26.0.1 c718bf97a92a6dea97fd1062c3b9f9e2e83cb9cc926e752289fa4ffff41738f9 pyarrow
LIST
  esac
}
about() {
  case "$1" in
    torch) echo "LibTorch: several ranks (c10d), the torch engine. 0.6 GB to download, 1.1 GB on disk" ;;
    cuda) echo "what torch needs on NVIDIA GPUs, and nvcc. 3 GB to download, 5 GB on disk; brings torch" ;;
    parquet) echo "Apache Arrow, for Parquet files. 50 MB to download, 0.2 GB on disk" ;;
  esac
}

say() { printf '%s\n' "ddl: $*" >&2; }
fail() { say "$*"; exit 2; }
usage() {
  cat <<'TEXT'
./ddl setup PART...            download and unpack optional parts; what is there already stays
./ddl setup --remove PART...   remove them
./ddl setup                    what there is

TEXT
  for part in torch cuda parquet; do
    if is_there "$part"; then state="installed"; else state="not installed"; fi
    printf '  %-8s %-14s %s\n' "$part" "$state" "$(about "$part")"
  done
}

# A part is there when its record says what this script would install: the record is written last.
is_there() { [ -f "$parts/$1.version" ] && [ "$(contents "$1" | cut -d' ' -f1-3)" = "$(cat "$parts/$1.version")" ]; }

find_pip() {
  for pip in "python3 -m pip" pip3 pip; do
    $pip --version >/dev/null 2>&1 && return 0
  done
  fail "setup needs Python's pip, which fetches the wheels. On Debian: apt-get install python3-pip"
}

# $1: package, $2: version, $3: hash. Sets `wheel`. A wheel that was downloaded before an interruption is used again.
fetch() {
  prefix=$(printf '%s' "$1" | tr - _)-$2-
  for wheel in "$wheels/$prefix"*.whl; do
    [ -f "$wheel" ] && [ "$(sha256sum "$wheel" | cut -d' ' -f1)" = "$3" ] && return 0
    rm -f "$wheel"
  done
  printf '%s==%s --hash=sha256:%s\n' "$1" "$2" "$3" >"$wheels/wanted.txt"
  # The hash names one wheel; Python 3.12 is whose wheels these are, whatever Python runs pip.
  $pip download --quiet --progress-bar on --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
    --require-hashes -r "$wheels/wanted.txt" -d "$wheels" >&2 || {
    fail "$1 $2 was not downloaded (above: why). ./ddl setup again continues with it"
  }
  for wheel in "$wheels/$prefix"*.whl; do
    [ -f "$wheel" ] && return 0
  done
  fail "$1 $2: pip left no $prefix*.whl in $wheels"
}

install_part() {
  part=$1
  if [ "$part" = cuda ]; then install_part torch; part=cuda; fi
  if is_there "$part"; then
    say "$part is there"
    return 0
  fi
  [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "setup: the wheels are those for Linux on x86_64, this is $(uname -s) $(uname -m)"
  find_pip
  mkdir -p "$wheels" 2>/dev/null || fail "setup: $parts cannot be written to"
  remove_part "$part"
  total=$(contents "$part" | wc -l) number=0
  contents "$part" >"$wheels/$part.list"
  while read -r package version hash what <&3; do
    number=$((number + 1))
    say "$part: $package $version ($number of $total)"
    fetch "$package" "$version" "$hash"
    # shellcheck disable=SC2086
    (cd "$parts" && cmake -E tar tf "$wheel" -- $what >>"$part.files" && cmake -E tar xf "$wheel" -- $what) ||
      fail "$wheel: cannot be unpacked into $parts; is the disk full?"
  done 3<"$wheels/$part.list"
  [ "$part" != cuda ] || chmod +x "$parts"/nvidia/cu13/bin/* "$parts"/nvidia/cu13/nvvm/bin/*
  contents "$part" | cut -d' ' -f1-3 >"$parts/$part.version.new"
  mv "$parts/$part.version.new" "$parts/$part.version"
  rm -rf "$wheels"
  configured=$root/build/release/build.ninja
  [ ! -f "$configured" ] || cmake "$root/build/release" >/dev/null || fail "setup: configuring again failed; run: cmake $root/build/release"
  say "$part is ready; the next ./ddl command builds what uses it"
}

# Only files that came with the part go, then folders that are empty.
remove_part() {
  rm -f "$parts/$1.version" # first: what is half removed is not there
  [ -f "$parts/$1.files" ] || return 0
  (cd "$parts" && while IFS= read -r file; do
    case "$file" in */) ;; *) rm -f -- "$file" ;; esac
  done <"$1.files" && find . -mindepth 1 -type d -empty -not -name downloads -delete)
  rm -f "$parts/$1.files"
}

action=install_part
if [ "${1:-}" = --remove ]; then
  action=remove_part
  shift
  [ $# -gt 0 ] || fail "setup --remove: which part? torch, cuda or parquet"
fi
case "${1:-}" in '' | -h | --help) usage; exit 0 ;; esac
for part in "$@"; do
  case "$part" in torch | cuda | parquet) ;; *) fail "setup: no part '$part'; expected torch, cuda or parquet" ;; esac
done
for part in "$@"; do
  $action "$part"
  if [ "$action" = remove_part ]; then
    [ "$part" != torch ] || remove_part cuda # which is nothing without it
    say "$part is removed"
    [ ! -f "$root/build/release/build.ninja" ] || cmake "$root/build/release" >/dev/null
  fi
done
