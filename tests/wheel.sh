#!/usr/bin/env bash
# Builds the wheel and uses it in a fresh environment: first without extras, then with
# all of them. An import that only an extra provides fails here and nowhere else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

say() { echo "wheel: $*"; }
pip() { "$python" -m pip -qq --disable-pip-version-check "$@"; }

if ! "$python" -m pip --version >/dev/null 2>&1; then
  "$python" -m venv "$folder/pip"
  python=$folder/pip/bin/python
fi
pip wheel --no-deps --wheel-dir "$folder" .
wheel=$(echo "$folder"/farrier-*.whl)
say "built $(basename "$wheel")"

"$python" -m venv --without-pip "$folder/env"
env=$folder/env/bin
install() { pip --python "$env/python" install --no-compile "$@"; }
install "$wheel"
# Programs that are compiled quickly, for they compute next to nothing.
flags="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
flags="$flags --xla_llvm_disable_expensive_passes=true"
# From another folder: the sources of the checkout must not be found.
(cd "$folder" && XLA_FLAGS=$flags "$env/python" -I - model.safetensors) <"$PWD/tests/wheel.py"
say "fits, saves, loads and predicts without extras"

install "$wheel[all]"
(cd "$folder" && "$env/farrier" --help >help.txt)
for command in fit predict inspect compact report export demo; do
  grep -qw "$command" "$folder/help.txt" || { say "\`farrier --help\` lacks $command" >&2; exit 1; }
done
say "\`farrier --help\` works with all extras"
