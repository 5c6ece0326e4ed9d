# Sourced by the commands in this folder: leaves $ROOT, $PYTHON and an environment that holds what requirements/$1.lock names.
# An active virtual environment is used as it is; otherwise $ROOT/.venv is made.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { printf 'error: %s\n' "$1" >&2; exit 1; }

find_python() {
    local candidate
    for candidate in "${AUTOSWITCH_PYTHON:-}" python3.11 python3.12 python3.13 python3; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && { printf '%s' "$candidate"; return; }
    done
    fail 'Python 3.11 or newer is needed. On Debian or Ubuntu: apt-get install python3 python3-venv'
}

use_environment() {
    local lock=$ROOT/requirements/$1.lock base venv stamp want held
    if [ -n "${VIRTUAL_ENV:-}" ] && [ -x "$VIRTUAL_ENV/bin/python" ]; then
        venv=$VIRTUAL_ENV
    else
        venv=$ROOT/.venv
        if [ ! -x "$venv/bin/python" ]; then
            base=$(find_python) || exit 1
            "$base" -c 'import venv, ensurepip' 2>/dev/null ||
                fail "this Python cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv"
            echo "making the virtual environment .venv"
            "$base" -m venv "$venv" || fail "could not make $venv; look at the lines above"
        fi
    fi
    PYTHON=$venv/bin/python
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$PYTHON is older than Python 3.11; leave that environment (deactivate) or make it anew"
    stamp=$venv/.autoswitch-mq.$1
    want=$(cat "$ROOT"/requirements/*.lock "$ROOT/pyproject.toml" "$ROOT/setup.py" "$ROOT"/nativepath/*.p[xy]* | cksum)$ROOT
    for held in $(supersets "$1"); do
        [ "$(cat "$venv/.autoswitch-mq.$held" 2>/dev/null)" = "$want" ] && return
    done
    echo "installing what requirements/$1.lock names (once)"
    install "$lock" || fail "the dependencies could not be installed; look at the lines above, then run this again"
    compile_modules
    printf '%s' "$want" >"$stamp"
}

compile_modules() { # where PYTHONDONTWRITEBYTECODE is set, every server would compile itself at each start
    (cd "$ROOT" && "$PYTHON" -m compileall -q ./*/*.py ./*/*/*.py) || true
}

supersets() { # the locks that hold everything the lock $1 names, itself among them
    case $1 in
        runtime) echo runtime spark dev ;;
        spark) echo spark dev ;;
        *) echo "$1" ;;
    esac
}

install() {
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --compile-bytecode --python "$PYTHON" --require-hashes -r "$1" &&
            uv pip install --quiet --python "$PYTHON" --no-deps --no-build-isolation -e "$ROOT"
    else
        "$PYTHON" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$1" &&
            "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e "$ROOT"
    fi
}
