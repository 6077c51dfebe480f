"""The lines of a training's log."""

import signal
from types import SimpleNamespace

from asr_ascend.training import callbacks
from asr_ascend.training.callbacks import StepProgress
from asr_ascend.training.module import TransducerModule
from tests.support.tiny_runs import TINY, run, write_corpus


def test_a_line_has_units_and_the_time_left(monkeypatch, capsys):
    now = [10.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])
    progress = StepProgress(lines_every_steps=10)
    trainer = SimpleNamespace(
        is_global_zero=True, estimated_stepping_batches=400, global_step=100, callback_metrics={}
    )
    module = SimpleNamespace(last_step_metrics={"rnnt_loss": None, "ctc_loss": 7.5})
    progress.on_train_start(trainer, module)
    trainer.global_step, now[0] = 110, 15.0
    progress.on_train_batch_end(trainer, module, None, None, 0)
    trainer.callback_metrics["valid_cer"] = 0.125
    progress.on_validation_end(trainer, module)
    trainer.global_step, now[0] = 400, 210.0
    module.last_step_metrics = {"rnnt_loss": 0.25, "ctc_loss": 7.5}
    progress.on_train_batch_end(trainer, module, None, None, 0)
    assert capsys.readouterr().err.splitlines() == [
        "step 110/400  CTC 7.50 nats  2.0 steps/s, about 2 min left",
        "step 110/400  streaming CER on the validation set 12.50%",
        "step 400/400  RNN-T 0.25 nats  CER 12.5%  1.5 steps/s",
    ]


def test_ctrl_c_ends_a_training_with_the_status_of_an_interrupt(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    write_corpus(tmp_path / "corpus")
    monkeypatch.setattr(TransducerModule, "training_step", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        done = run("train", *TINY, "data.train_manifest=corpus/tones.jsonl", folder=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning takes no second one while it ends
    told = "Interrupted; resume=true goes on from the run's last checkpoint."
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, told)
    assert "Traceback" not in done.stderr
