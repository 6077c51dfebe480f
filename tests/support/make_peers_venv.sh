#!/usr/bin/env bash
# Makes the environment of the tests with real frameworks: SpeechBrain, NeMo and ESPnet on the CPU.
#   make_peers_venv.sh FOLDER PYTHON
# FOLDER holds the frameworks and what their losses and models import. Everything else, torch
# too, comes from the environment of PYTHON. Where it can't be made, one line says why,
# FOLDER/unavailable keeps it for the tests' reports, and the exit status is 1.
set -uo pipefail

mkdir -p "$1" && folder=$(cd "$1" && pwd)
python=$2
log=$folder/make_venv.log
# With what they need. NeMo 3.0 takes no newer lightning.
whole=(speechbrain==1.1.2 numba==0.68.1 hyperpyyaml==1.2.3 lightning==2.4.0 onnx wrapt
  scikit-learn smart-open text-unidecode typeguard humanfriendly nv_one_logger_core
  nv_one_logger_training_telemetry nv_one_logger_pytorch_lightning_integration einops braceexpand
  webdataset transformers kaldialign librosa sacrebleu datasets pandas)
# Without: of what they ask for, most serves other tasks than these tests.
alone=(nemo_toolkit==3.0.0 espnet==202511)

unavailable() {
  echo "$1" >"$folder/unavailable"
  echo "Tests with real frameworks can't run: $1" >&2
  exit 1
}

rm -f "$folder/unavailable"
base=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') ||
  unavailable "$python doesn't run; \`make venv\` makes it."
wanted="$base ${whole[*]} ${alone[*]}"
[ "$(cat "$folder/packages" 2>/dev/null)" = "$wanted" ] && exit 0
if [ ! -x "$folder/bin/python" ]; then
  "$python" -m venv "$folder" >"$log" 2>&1 || unavailable "$python can't make a virtual environment; see $log."
fi
own=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$base')" >"$own/base.pth"
echo "Installing ${whole[0]} and ${alone[*]} into ${folder##*/} (minutes on a slow line) ..."
pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
{ "${pip[@]}" "${whole[@]}" && "${pip[@]}" --no-deps "${alone[@]}"; } >"$log" 2>&1 ||
  unavailable "pip can't install them: $(grep -m 1 -i error "$log" || tail -n 1 "$log")"
echo "$wanted" >"$folder/packages"
