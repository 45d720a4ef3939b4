#!/bin/sh
# sh script_test.sh DDL CASE: the ddl script in a repository that holds nothing else, with stand-ins for the tools it calls.
set -eu
script=$1
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
repository=$work/repository tools=$work/tools
mkdir -p "$repository/src" "$tools"
cp "$script" "$repository/ddl"
PATH=$tools:$PATH
export PATH work

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}
tool() { # $1: its name; standard input: what it does
  { echo '#!/bin/sh' && cat; } >"$tools/$1"
  chmod +x "$tools/$1"
}
expect() { # $1: what, $2: found, $3: expected
  [ "$2" = "$3" ] || fail "$1: expected '$3', found '$2'"
}

echo 'echo ok installed' | tool dpkg-query # nothing is ever installed from here
tool cmake <<'TOOL'
echo configured >>"$work/log"
mkdir -p "$work/repository/build/release"
touch "$work/repository/build/release/build.ninja"
TOOL
tool ninja <<'TOOL'
echo built >>"$work/log"
printf '#!/bin/sh\necho program "$@"\n' >"$work/repository/build/release/ddl"
chmod +x "$work/repository/build/release/ddl"
TOOL

# May this user write to a folder that is closed to writing? Root may: then the case is run as nobody.
as_user() {
  if [ "$(id -u)" != 0 ]; then
    "$@"
  else
    chmod 755 "$work" "$tools"
    setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
  fi
}

case $2 in
  builds_then_runs)
    expect output "$("$repository/ddl" info --json)" "program info --json"
    "$repository/ddl" info >/dev/null
    expect tools "$(tr '\n' ' ' <"$work/log")" "configured built built "
    ;;

  through_a_link)
    mkdir "$work/bin"
    ln -s "$repository/ddl" "$work/bin/first"
    ln -s first "$work/bin/ddl"
    expect output "$(cd / && "$work/bin/ddl" info)" "program info"
    [ ! -e "$work/bin/build" ] || fail "it took the link's folder for the repository"
    ;;

  two_at_once)
    # Two ninjas that meet say so.
    cp "$tools/ninja" "$tools/ninja_proper"
    tool ninja <<'TOOL'
mkdir "$work/building" || { echo met >>"$work/log"; exit 1; }
sleep 0.5
rmdir "$work/building"
exec ninja_proper "$@"
TOOL
    "$repository/ddl" first >"$work/out1" 2>"$work/err1" &
    first=$!
    "$repository/ddl" second >"$work/out2" 2>"$work/err2" || fail "the second failed: $(cat "$work/err2")"
    wait "$first" || fail "the first failed: $(cat "$work/err1")"
    expect tools "$(tr '\n' ' ' <"$work/log")" "configured built built "
    cat "$work/err1" "$work/err2" | grep -q 'waiting for another' || fail "none says that it waits"
    expect outputs "$(cat "$work/out1" "$work/out2" | tr '\n' ' ')" "program first program second "
    ;;

  lock_ends_with_the_build)
    # Neither the program nor what a build leaves running keeps others from building.
    cp "$tools/ninja" "$tools/ninja_proper"
    tool ninja <<'TOOL'
ninja_proper
printf 'exec sleep 30\n' >>"$work/repository/build/release/ddl"
sleep 30 &
echo $! >>"$work/daemons"
TOOL
    "$repository/ddl" long >/dev/null 2>&1 &
    long=$!
    while ! grep -q built "$work/log" 2>/dev/null; do sleep 0.05; done
    # Under a time limit of its own: a lock that is kept would be waited for.
    if timeout 20 flock "$repository/build/lock" true; then kept=no; else kept=yes; fi
    # shellcheck disable=SC2046
    kill "$long" $(cat "$work/daemons")
    wait "$long" || true
    expect "lock kept" "$kept" no
    ;;

  stopped)
    # Ctrl-C ends what it had started.
    tool ninja <<'TOOL'
echo $$ >"$work/pid"
exec sleep 10
TOOL
    "$repository/ddl" info 2>/dev/null &
    ddl=$!
    while [ ! -s "$work/pid" ]; do sleep 0.05; done
    kill -TERM "$ddl"
    if wait "$ddl"; then fail "it went on"; fi
    if kill -0 "$(cat "$work/pid")" 2>/dev/null; then fail "the build goes on"; fi
    ;;

  quiet)
    # A look at what there is to build takes ninja a second or two on a busy machine: nothing is said of that.
    cp "$tools/ninja" "$tools/ninja_proper"
    { echo 'sleep 2' && echo 'exec ninja_proper'; } | tool ninja
    "$repository/ddl" info >/dev/null 2>"$work/err"
    expect "said of a short build" "$(cat "$work/err")" ""
    # A long one is announced.
    echo 'while ! grep -q "building \.\.\." "$work/err"; do sleep 0.1; done; exec ninja_proper' | tool ninja
    "$repository/ddl" info >/dev/null 2>"$work/err"
    expect "said of a long build" "$(cat "$work/err")" "ddl: building ..."
    ;;

  seconds)
    # Each sleep of the script takes no time here, each look at the clock 21 seconds.
    command -v script >/dev/null || fail "needs script(1)"
    cp "$tools/ninja" "$tools/ninja_proper"
    tool ninja <<'TOOL'
while [ ! -e "$work/shown" ]; do /bin/sleep 0.02; done
exec ninja_proper
TOOL
    tool date <<'TOOL'
now=$(cat "$work/now" 2>/dev/null || echo 100)
echo "$now"
echo $((now + 21)) >"$work/now"
[ "$now" -lt 163 ] || touch "$work/shown"
TOOL
    echo 'exec /bin/sleep 0.001' | tool sleep
    out=$(script -qec "$repository/ddl info" /dev/null </dev/null)
    case $out in
      *'building, 21 s'*'building, 42 s'*) ;;
      *) fail "no seconds by the clock: $out" ;;
    esac
    ;;

  somebody_elses)
    "$repository/ddl" info >/dev/null
    : >"$work/log"
    chmod -R a+rX "$work"
    chmod -R a-w "$repository"
    expect output "$(as_user "$repository/ddl" info 2>&1)" "program info"
    expect tools "$(cat "$work/log")" ""
    chmod u+w "$repository/src"
    touch -d '1 hour' "$repository/src/new.cc"
    as_user "$repository/ddl" info 2>&1 | grep -q 'sources are newer' || fail "an old program is run without a word"
    if as_user "$repository/ddl" test 2>"$work/err"; then fail "tests without a place to build"; fi
    grep -q 'cannot be written' "$work/err" || fail "test: $(cat "$work/err")"
    chmod u+w "$repository/build/release"
    rm "$repository/build/release/ddl"
    chmod a-w "$repository/build/release"
    if as_user "$repository/ddl" info 2>"$work/err"; then fail "no program, and no error"; fi
    grep -q 'has not been built' "$work/err" || fail "no program: $(cat "$work/err")"
    ;;

  installs)
    # The real program where the build has one ($3), which writes real completions.
    tool ninja <<TOOL
mkdir -p "$repository/build/release"
cp "$3" "$repository/build/release/ddl"
TOOL
    prefix=$work/prefix
    "$repository/ddl" install --prefix "$prefix" >"$work/out" 2>"$work/err" || fail "install: $(cat "$work/err")"
    grep -q 'not on your PATH' "$work/err" || fail "nothing said of PATH: $(cat "$work/err")"
    while read -r file; do [ -s "$file" ] || fail "$file is empty or not there"; done <"$work/out"
    expect files "$(wc -l <"$work/out" | tr -d ' ')" 5
    expect program "$("$prefix/bin/ddl" version | head -n 1 | cut -d ' ' -f 1)" ddl
    ! grep -q 'ddl: ' "$work/out" || fail "notices among the files"
    if "$repository/ddl" install --prefx x 2>/dev/null; then fail "a wrong argument was taken"; fi
    # Completion as bash does it: words so far, then what is offered.
    if command -v bash >/dev/null; then
      offered() {
        bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ddl; echo "${COMPREPLY[*]}"' - \
          "$prefix/share/bash-completion/completions/ddl" "$@"
      }
      expect "ddl tr" "$(offered ddl tr)" train
      expect "ddl data pre" "$(offered ddl data pre)" prepare
      expect "ddl train --find" "$(offered ddl train --find)" --find-lr
      expect "ddl train --data x --res" "$(offered ddl train --data x --res)" --resume
      case " $(offered ddl bench '') " in *' decode '*) ;; *) fail "bench: $(offered ddl bench '')" ;; esac
      case " $(offered ddl '') " in *' completion '*) fail "the hidden command is offered" ;; esac
    fi
    grep -q '^#compdef ddl' "$prefix/share/zsh/site-functions/_ddl" || fail "zsh"
    grep -q -- "-l find-lr" "$prefix/share/fish/vendor_completions.d/ddl.fish" || fail "fish"
    if command -v man >/dev/null && man -l "$prefix/share/man/man1/ddl.1" >"$work/page" 2>"$work/err"; then
      grep -q 'ddl data prepare' "$work/page" || fail "manual page: $(head -n 20 "$work/page")"
    fi
    ;;

  *) fail "no case '$2'" ;;
esac
