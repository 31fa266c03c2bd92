#!/usr/bin/env bash
# Makes .venv with everything the project needs: Python packages by the lock file, Java 17, Iceberg's
# Spark runtime. A second run finds its stamp and ends at once. Asks nothing: where it would have to,
# it says in one line which command helps.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.sluice-stamp
want=$(cat requirements.lock protos/requirements.lock pyproject.toml scripts/setup.sh sluice/artifacts/jars.py sluice/artifacts/iceberg.py \
  | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null || true)" = "$want $PWD" ]; then exit 0; fi

say() { printf '\033[1msetup:\033[0m %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
again() { # a command that fetches: up to three times, as a network may fail for a moment
  local pause
  for pause in 5 20; do
    if "$@"; then return; fi
    say "that failed; once more in $pause s: $1"
    sleep "$pause"
  done
  "$@"
}
apt_updated=
install() { # package, what it is for
  can_apt || die "$2 is missing: run 'sudo apt-get install -y $1' and then the same command again"
  say "installing $1 ($2)"
  [ -n "$apt_updated" ] || { again apt-get update -qq >/dev/null; apt_updated=1; }
  DEBIAN_FRONTEND=noninteractive again apt-get -o DPkg::Lock::Timeout=300 install -y -qq "$1" >/dev/null
}
is_311() { command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null; }

python=
for candidate in python3.11 python3 python3.12 python3.13; do
  if is_311 "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || { install python3 "Python 3.11 or newer"; python=python3; }
is_311 "$python" || die "Python 3.11 or newer is needed; $($python --version) was found"
"$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv "Python's venv module"
command -v cc >/dev/null || install gcc "a C compiler, for the compiled loops of a wheel"
command -v objdump >/dev/null || install binutils "objdump, which tells what a wheel needs"
java_17() { command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|2[0-9])'; }
java_17 || install openjdk-17-jre-headless "Java 17, for Spark"

say "virtual environment .venv ($("$python" --version))"
[ -x .venv/bin/python ] || "$python" -m venv .venv
# uv itself comes by pip, at the version and with the hashes of the one lock file.
awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock > .venv/uv.txt
again .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r .venv/uv.txt
say "Python packages of requirements.lock"
again .venv/bin/uv pip sync -q --python .venv/bin/python --require-hashes requirements.lock
again .venv/bin/uv pip install -q --python .venv/bin/python --no-deps -e .
# In a folder of its own: it is as old as the oldest protobuf allowed, and .venv has the newest.
rm -rf .cache/protoc
again .venv/bin/uv pip install -q --python .venv/bin/python --no-deps --require-hashes \
  --target .cache/protoc -r protos/requirements.lock

say "compiled kernels (once for a machine)"
.venv/bin/sluice warm >/dev/null

say "Iceberg's runtime for Spark"
.venv/bin/sluice jars fetch .cache/jars >/dev/null
echo "$want $PWD" > "$stamp"
say "ready"
