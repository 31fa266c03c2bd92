#!/usr/bin/env bash
# Installs what the project needs: .venv with the packages of the lock file, Java 17, Iceberg's Spark
# runtime, and a browser and Node's packages for the page. A second run finds its stamp and ends at
# once. Never prompts: an error is one line with the command to run.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.sluice-stamp
want=$(cat requirements.lock protos/requirements.lock frontend/package-lock.json pyproject.toml scripts/setup.sh sluice/artifacts/jars.py sluice/artifacts/iceberg.py \
  | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null || true)" = "$want $PWD" ]; then exit 0; fi

say() { printf '\033[1msetup:\033[0m %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
retry() { # runs a command that downloads up to three times, because networks fail briefly
  local pause
  for pause in 5 20; do
    if "$@"; then return; fi
    say "$1 failed; retrying in $pause s"
    sleep "$pause"
  done
  "$@"
}
apt_updated=
install() { # package, description
  can_apt || die "$2 is missing: run \`sudo apt-get install -y $1\`, then repeat this command"
  say "installing $1 ($2)"
  [ -n "$apt_updated" ] || { retry apt-get update -qq >/dev/null; apt_updated=1; }
  DEBIAN_FRONTEND=noninteractive retry apt-get -o DPkg::Lock::Timeout=300 install -y -qq "$1" >/dev/null
}
is_311() { command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null; }

python=
for candidate in python3.11 python3 python3.12 python3.13; do
  if is_311 "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || { install python3 "Python 3.11 or newer"; python=python3; }
is_311 "$python" || die "Python 3.11 or newer is required, found $($python --version)"
"$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv "Python's venv module"
command -v cc >/dev/null || install gcc "a C compiler, for the compiled loops of a wheel"
command -v objdump >/dev/null || install binutils "objdump, to read what a wheel needs"
command -v chromium >/dev/null || command -v google-chrome >/dev/null ||
  install chromium "a browser, to test the page"
java_17() { command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|2[0-9])'; }
java_17 || install openjdk-17-jre-headless "Java 17, for Spark"

say "virtual environment .venv ($("$python" --version))"
[ -x .venv/bin/python ] || "$python" -m venv .venv
# pip installs uv itself, with the version and hashes of the lock file.
awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock > .venv/uv.txt
retry .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r .venv/uv.txt
say "Python packages of requirements.lock"
retry .venv/bin/uv pip sync -q --python .venv/bin/python --require-hashes requirements.lock
retry .venv/bin/uv pip install -q --python .venv/bin/python --no-deps -e .
# In its own folder, because it matches the oldest allowed protobuf and .venv has the newest.
rm -rf .cache/protoc
retry .venv/bin/uv pip install -q --python .venv/bin/python --no-deps --require-hashes \
  --target .cache/protoc -r protos/requirements.lock

say "packages of frontend/package-lock.json"
npm_ci() { (cd frontend && PATH="$PWD/../.venv/bin:$PATH" npm ci --no-progress --no-update-notifier --loglevel=error >/dev/null); }
retry npm_ci || die "npm cannot install them: name a registry that this machine reaches, \`export npm_config_registry=URL\`, then repeat this command"

say "compiled loops (once per machine)"
.venv/bin/sluice warm --loops-only >/dev/null

say "Iceberg's runtime for Spark"
.venv/bin/sluice jars fetch .cache/jars >/dev/null
say "archive of classes for Spark's start (once for these jars)"
.venv/bin/sluice warm --jars "$(printf '%s,' "$PWD"/.cache/jars/iceberg-spark-runtime-*.jar)" >/dev/null || say "without it"
echo "$want $PWD" > "$stamp"
say "ready"
