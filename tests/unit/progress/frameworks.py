# ruff: noqa: E501 - lines as the tools print them
"""What training frameworks and tools print, line by line, with the time of each line.

The formats are those of the tools' own sources and logs. ``of_run(printed)`` cuts each
at a share of its time; a run of nested counters has several outer steps.
"""

import random
from collections.abc import Callable, Iterator

Printed = Iterator[tuple[float, str]]
Framework = Callable[[], Printed]


def _clock(seconds: float, *, days: bool = False) -> str:
    """Return ``H:MM:SS``, or ``1 day, H:MM:SS`` where that is so long."""
    whole = int(seconds)
    text = f"{whole // 3600 % 24 if days else whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return (
        f"{whole // 86400} day{'s' * (whole >= 172800)}, {text}"
        if days and whole >= 86400
        else text
    )


def _short(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60:02}:{whole % 60:02}"


def nested(
    epochs: int, steps: int, every: float, after: float = 0.0
) -> Iterator[tuple[float, int, int, float]]:
    """Yield the time, epoch and step, both from 0, and the seconds left of the run."""
    dice, clock = random.Random(7), 0.0
    whole = epochs * (steps * every + after)
    for epoch in range(epochs):
        for step in range(steps):
            clock += every * dice.lognormvariate(0, 0.05)
            yield clock, epoch, step, max(0.0, whole - clock)
        clock += after


def _tqdm(label: str, done: int, total: int, every: float = 0.5) -> str:
    bar = "█" * (10 * done // total)
    times = f"{_short(done * every)}<{_short((total - done) * every)}"
    return f"\r{label}{100 * done // total:3d}%|{bar:<10}| {done}/{total} [{times},  {1 / every:.2f}it/s]"


def mmdet() -> Printed:
    for clock, epoch, step, left in nested(4, 40, 0.5):
        yield (
            clock,
            (
                f"2026-11-26 10:00:00,123 - mmdet - INFO - Epoch [{epoch + 1}][{50 * (step + 1)}/2000]\t"
                f"lr: 2.000e-02, eta: {_clock(left, days=True)}, time: 0.482, data_time: 0.013, "
                f"memory: 3915, loss_cls: 0.3, acc: 92.1, loss: {1 / (step + 1):.4f}\n"
            ),
        )


def mmengine() -> Printed:
    for clock, epoch, step, left in nested(5, 40, 0.5, after=3):
        yield (
            clock,
            (
                f"11/26 10:00:00 - mmengine - INFO - Epoch(train)  [{epoch + 1}][{50 * (step + 1):4}/2000]  "
                f"lr: 2.0000e-02  eta: {_clock(left, days=True)}  time: 0.4820  data_time: 0.0131  "
                f"memory: 3915  loss: {1 / (step + 1):.4f}\n"
            ),
        )
        if step == 39:
            for batch in range(1, 6):
                yield (
                    clock + 0.5 * batch,
                    (
                        f"11/26 10:00:00 - mmengine - INFO - Epoch(val)  [{epoch + 1}][{batch * 50:3}/250]    "
                        f"eta: {_clock(0.5 * (5 - batch))}  time: 0.0321  data_time: 0.0023  memory: 800\n"
                    ),
                )


def mmengine_iterations() -> Printed:
    for clock, _, step, left in nested(1, 160, 0.5):
        yield (
            clock,
            (
                f"11/26 10:00:00 - mmengine - INFO - Iter(train) [{500 * (step + 1):6}/80000]  base_lr: 1.0e-02 "
                f"lr: 1.0e-02  eta: {_clock(left, days=True)}  time: 0.4  memory: 8192  loss: 0.5\n"
            ),
        )


def timm() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        done = 20 * step
        yield (
            clock,
            (
                f"Train: {epoch} [{done:>4d}/{800} ({100 * step // 39:>3.0f}%)]  Loss: {2 / (step + 1):#.3g} "
                f"(6.93)  Time: 0.512s,  500.10/s  (0.530s,  482.77/s)  LR: 1.000e-05  Data: 0.010 (0.028)\n"
            ),
        )
        if step == 39:
            for batch in range(0, 11, 5):
                yield (
                    clock + 0.1 * (batch + 1),
                    (
                        f"Test: [{batch:>4d}/10]  Time: 0.312 (0.312)  Loss:   6.9 (  6.9)  Acc@1:  0.1 (  0.1)\n"
                    ),
                )


def torchvision() -> Printed:
    for clock, epoch, step, _ in nested(6, 40, 0.5, after=2):
        yield (
            clock,
            (
                f"Epoch: [{epoch}]  [{10 * step:4d}/400]  eta: {_clock((40 - step) * 0.5)}  lr: 0.01  "
                f"img/s: 312.3  loss: 0.61 (0.64)  acc1: 81.2 (80.3)  acc5: 93.7 (94.0)  time: 0.05  data: 0.001  max mem: 2345\n"
            ),
        )
        if step == 39:
            yield clock + 0.1, f"Epoch: [{epoch}] Total time: 0:00:20\n"
            for batch in range(5):
                yield (
                    clock + 0.3 * (batch + 1),
                    (
                        f"Test:   [{batch * 100:3d}/500]  eta: {_clock(0.3 * (5 - batch))}  loss: 0.5 (0.5)  acc1: 80.0 (80.0)  time: 0.1  data: 0.0  max mem: 2345\n"
                    ),
                )


def imagenet_example() -> Printed:
    for clock, epoch, step, _ in nested(6, 40, 0.5):
        yield (
            clock,
            (
                f"Epoch: [{epoch}][{10 * step + 1:5d}/400]\tTime  0.512 ( 0.530)\tData  0.010 ( 0.028)\t"
                f"Loss 6.9314e+00 (6.9e+00)\tAcc@1   0.00 (  0.10)\tAcc@5   0.00 (  0.51)\n"
            ),
        )


def mnist_example() -> Printed:
    for clock, epoch, step, _ in nested(6, 40, 0.5, after=1):
        yield (
            clock,
            (
                f"Train Epoch: {epoch + 1} [{step * 1500}/60000 ({100 * step / 40:.0f}%)]\tLoss: 0.5\n"
            ),
        )


def yolo() -> Printed:
    for clock, epoch, step, _ in nested(5, 30, 0.5, after=3):
        head = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        label = (
            f"{epoch + 1:>11}/5".rjust(11)
            + f"      2.36G      1.2{step % 10}      3.1      1.3        {step + 3}        640: "
        )
        yield clock, ("\n" + head if not step else "") + _tqdm(label, step + 1, 30)
        if step == 29:
            label = "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): "
            yield clock + 0.3, "\n"
            for batch in range(1, 5):
                yield clock + 0.3 + 0.5 * batch, _tqdm(label, batch, 4)


def yolo_v5() -> Printed:
    for clock, epoch, step, _ in nested(6, 30, 0.5, after=3):
        label = f"       {epoch}/5      3.6G   0.0452    0.0213   0.012    {step + 20}       640: "
        yield clock, ("\n" if not step else "") + _tqdm(label, step + 1, 30)


def monai() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        if not step:
            yield clock - 0.4, f"----------\nepoch {epoch + 1}/5\n"
        yield clock, f"{step + 1}/40, train_loss: {1 / (step + 1):.4f}\n"
        if step == 39:
            yield clock + 0.1, f"epoch {epoch + 1} average loss: 0.4321\n"


def monai_unknown() -> Printed:
    """The same script with a line of its own in place of the heading."""
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        if not step:
            yield clock - 0.4, f"----------\nepoch {epoch + 1}\n"
        yield clock, f"{step + 1}/40, train_loss: {1 / (step + 1):.4f}\n"


def monai_engine() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        yield (
            clock,
            (
                f"INFO:ignite.engine.engine.SupervisedTrainer:Epoch: {epoch + 1}/5, Iter: {step + 1}/40 -- train_loss: 0.5\n"
            ),
        )


def detectron2() -> Printed:
    for clock, _, step, left in nested(1, 120, 0.5):
        yield (
            clock,
            (
                f"[11/26 10:00:00 d2.utils.events]:  eta: {_clock(left, days=True)}  iter: {20 * step + 19}  total_loss: 1.2  "
                f"loss_cls: 0.3  time: 0.2512  last_time: 0.2483  data_time: 0.0042  lr: 0.0002  max_mem: 2703M\n"
            ),
        )


def fairseq() -> Printed:
    for clock, epoch, step, _ in nested(4, 40, 0.5, after=2):
        yield (
            clock,
            (
                f"2026-11-26 10:00:00 | INFO | train_inner | epoch {epoch + 1:03}:{100 * (step + 1):7} / 4000 loss=9.1, "
                f"nll_loss=8.3, ppl=312.5, wps=21030, ups=5.1, wpb=4100, bsz=128, num_updates={4000 * epoch + 100 * step}, lr=1e-05, gnorm=2.1\n"
            ),
        )


def fairseq_bar() -> Printed:
    for clock, epoch, step, _ in nested(4, 40, 0.5, after=2):
        yield (
            clock,
            ("\n" if not step else "") + _tqdm(f"epoch {epoch + 1:03}: ", step + 1, 40),
        )


def keras() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        if not step:
            yield clock - 0.4, f"\nEpoch {epoch + 1}/5\n"
        yield (
            clock,
            f"\r{step + 1}/40 {'━' * 20} {(40 - step) // 2}s 500ms/step - loss: 0.5",
        )


def lightning() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=2):
        yield (
            clock,
            _tqdm(f"Epoch {epoch}: ", step + 1, 40) + ("\n" if step == 39 else ""),
        )
        if step == 39:
            for batch in range(1, 5):
                yield clock + 0.3 * batch, _tqdm("Validation DataLoader 0: ", batch, 4)


def huggingface() -> Printed:
    yield (
        0.1,
        "***** Running training *****\n  Num examples = 4,800\n  Num Epochs = 3\n  Total optimization steps = 120\n",
    )
    for clock, epoch, step, _ in nested(3, 40, 0.5, after=0.5):
        n = 40 * epoch + step + 1
        yield clock, _tqdm("", n, 120)
        if n % 10 == 0:
            yield (
                clock + 0.05,
                f"\n{{'loss': 1.9, 'grad_norm': 2.1, 'learning_rate': 4e-05, 'epoch': {n / 40:.2f}}}\n",
            )
        if step == 39:
            for batch in range(1, 9):
                yield clock + 0.05 * batch, "\n" + _tqdm("", batch, 8) + "\x1b[A"


def spacy() -> Printed:
    yield (
        0.2,
        "E    #       LOSS TOK2VEC  LOSS TAGGER  TAG_ACC  SCORE \n---  ------  ------------  -----------  -------  ------\n",
    )
    for clock, epoch, step, _ in nested(4, 10, 2.0):
        yield (
            clock,
            f"{epoch:3}  {200 * (10 * epoch + step):6}          1.23       100.12    {50 + step:.2f}    0.{50 + step}\n",
        )


def xgboost() -> Printed:
    for clock, _, step, _ in nested(1, 100, 0.5):
        yield (
            clock,
            f"[{step}]\ttrain-rmse:{9 / (step + 1):.5f}\ttest-rmse:{9.5 / (step + 1):.5f}\n",
        )


def lightgbm() -> Printed:
    for clock, _, step, _ in nested(1, 100, 0.5):
        yield (
            clock,
            f"[{step + 1}]\ttraining's binary_logloss: 0.5\tvalid_1's binary_logloss: 0.6\n",
        )


def snakemake() -> Printed:
    for clock, _, step, _ in nested(1, 60, 1.0):
        yield (
            clock,
            (
                f"[Thu Nov 26 10:00:00 2026]\nFinished jobid: {step} (Rule: align)\n"
                f"{step + 1} of 60 steps ({100 * (step + 1) // 60}%) done\n"
            ),
        )


def nextflow() -> Printed:
    for clock, _, step, _ in nested(1, 60, 1.0):
        n = step + 1
        ahead = "\x1b[2A" if step else ""
        yield (
            clock,
            (
                f"{ahead}[{n:02x}/a1b2c3] FASTQC (s{n}) | {min(20, n)} of 20{' ✔' if n >= 20 else ''}\n"
                f"[{n:02x}/d4e5f6] ALIGN (s{n})  | {max(0, n - 20)} of {min(20, n)}\n"
            ),
        )


def gromacs() -> Printed:
    for clock, _, step, left in nested(1, 120, 0.5):
        yield (
            clock,
            f"\rstep {1000 * (step + 1)}, remaining wall clock time: {left:5.0f} s          ",
        )


def star() -> Printed:
    for clock, _, step, _ in nested(1, 60, 1.0):
        n = step + 1
        yield (
            clock,
            f"Nov 26 10:00:{n:02}     {150 + n % 7}.2    {25000 * n}      101    92.{n:02}%     100.5     0.3%     5.1%     0.0%     0.1%     0.0%\n",
        )


def diamond() -> Printed:
    for clock, block, step, _ in nested(5, 16, 0.5):
        yield (
            clock,
            (
                f"Processing query block 1, reference block {block + 1}/5, shape {step // 8 + 1}/2, index chunk {step % 8 // 2 + 1}/4.\n"
                f"Building reference seed array...  [0.12s]\n"
            ),
        )


def tqdm_nested() -> Printed:
    for clock, epoch, step, _ in nested(6, 40, 0.5):
        outer = _tqdm("epochs: ", epoch, 6, 20)
        yield (
            clock,
            (outer if not step else "")
            + "\n"
            + _tqdm("batches: ", step + 1, 40)
            + "\x1b[A",
        )


def tqdm_inner() -> Printed:
    """A bar anew for each of several files, and nobody says of how many."""
    for clock, _, step, _ in nested(6, 40, 0.5):
        yield clock, ("\n" if not step else "") + _tqdm("", step + 1, 40)


def pv() -> Printed:
    for clock, _, step, left in nested(1, 100, 0.5):
        n = step + 1
        yield (
            clock,
            f"\r{12 * n} MiB {_clock(clock)} [24.0MiB/s] [{'=' * (n // 10)}>{' ' * (10 - n // 10)}] {n:2d}% ETA {_clock(left)}",
        )


def rsync() -> Printed:
    for clock, _, step, left in nested(1, 100, 0.5):
        n = step + 1
        yield (
            clock,
            f"\r    {12345678 * n:>13,}  {n:3d}%   24.00MB/s    {_clock(left)} (xfr#{n}, to-chk={100 - n}/101)",
        )


def wget() -> Printed:
    for clock, _, step, left in nested(1, 100, 0.5):
        n = step + 1
        yield (
            clock,
            f"\rbig.tar.gz          {n:3d}%[{'=' * (n // 5)}>{' ' * (20 - n // 5)}]  {1.2 * n:6.2f}M  2.40MB/s    eta {int(left)}s    ",
        )


def ffmpeg() -> Printed:
    yield 0.1, "  Duration: 00:10:00.00, start: 0.000000, bitrate: 5000 kb/s\n"
    for clock, _, step, _ in nested(1, 100, 0.5):
        n = step + 1
        yield (
            clock,
            f"\rframe={150 * n:5d} fps=300 q=28.0 size=  {100 * n}KiB time=00:{6 * n // 60:02}:{6 * n % 60:02}.00 bitrate=1000.0kbits/s speed=12x    ",
        )


def namd() -> Printed:
    for clock, _, step, left in nested(1, 120, 0.5):
        yield (
            clock,
            (
                f"TIMING: {500 * (step + 1)}  CPU: {clock:.4f}, 0.002/step  Wall: {clock:.4f}, 0.002/step, "
                f"{left / 3600:.6f} hours remaining, 1024.000000 MB of memory in use.\n"
            ),
        )


def nanodet() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        yield (
            clock,
            f"[NanoDet][11-26 10:00:00]INFO: Train|Epoch{epoch + 1}/5|Iter{40 * epoch + step}({step + 1}/40)| mem:3.1G| lr:1.00e-02| loss_qfl:0.5\n",
        )


def paddle() -> Printed:
    for clock, epoch, step, left in nested(5, 40, 0.5):
        yield (
            clock,
            f"[11/26 10:00:00] ppdet.engine INFO: Epoch: [{epoch}] [{20 * step:3}/800] learning_rate: 0.000100 loss: 1.23 eta: {_clock(left, days=True)} batch_cost: 0.31 data_cost: 0.01 ips: 12.1 images/s\n",
        )


def nemo_step() -> Printed:
    for clock, _, step, _ in nested(1, 100, 0.5):
        yield (
            clock,
            f" iteration {10 * (step + 1):8d}/    1000 | consumed samples: {2560 * step:12d} | elapsed time per iteration (ms): 500.1 | learning rate: 1.0E-04 | global batch size: 256 | lm loss: 5.1E+00 |\n",
        )


def allennlp() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=1):
        if not step:
            yield (
                clock - 0.4,
                f"2026-11-26 10:00:00,000 - INFO - allennlp.training.trainer - Epoch {epoch}/4\n",
            )
        yield (
            clock,
            _tqdm(
                f"accuracy: 0.9{step % 10}, batch_loss: 0.1, loss: 0.3 ||: ",
                step + 1,
                40,
            )
            + ("\n" if step == 39 else ""),
        )


def flair() -> Printed:
    for clock, epoch, step, _ in nested(5, 10, 2.0, after=1):
        yield (
            clock,
            f"2026-11-26 10:00:00,123 epoch {epoch + 1} - iter {8 * (step + 1)}/80 - loss 2.1 - time (sec): 2.00 - samples/sec: 512.1 - lr: 0.100000\n",
        )


def nnunet() -> Printed:
    for clock, epoch, _, _ in nested(60, 1, 1.0):
        yield (
            clock,
            f"2026-11-26 10:00:00.123: \n2026-11-26 10:00:00.123: Epoch {epoch}\n2026-11-26 10:00:00.123: Current learning rate: 0.01\n2026-11-26 10:00:00.123: train_loss -0.1\n",
        )


def fastai() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        share = 100 * (step + 1) / 40
        yield (
            clock,
            f"\rEpoch {epoch + 1}/5 : |{'█' * int(share // 2):<50}| {share:.2f}% [{step + 1}/40 {_short(step / 2)}<{_short(20 - step / 2)} 0.123]",
        )


def catalyst() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        yield (
            clock,
            ("\n" if not step else "")
            + _tqdm(f"{epoch + 1}/5 * Epoch (train): ", step + 1, 40),
        )


def segmentation() -> Printed:
    """Bars of segmentation_models.pytorch, under a heading of its examples."""
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=4):
        if not step:
            yield clock - 0.4, f"\nEpoch: {epoch}\n"
        yield clock, _tqdm("train: ", step + 1, 40)
        if step == 39:
            for batch in range(1, 9):
                yield clock + 0.4 * batch, _tqdm("valid: ", batch, 8)


def openfold_like() -> Printed:
    """A rich bar with an epoch that counts from 0 and a total."""
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        yield (
            clock,
            f"\rEpoch {epoch}/4 {'━' * 20} {step + 1}/40 0:00:01 • 0:00:09 9.99it/s v_num: 0 train_loss: 1.2",
        )


def joined_word() -> Printed:
    for clock, epoch, _, _ in nested(60, 1, 1.0):
        yield clock, f"{epoch + 1}/60epoch loss={1 / (epoch + 1):.3f}\n"


def comma() -> Printed:
    for clock, _, step, _ in nested(1, 100, 0.5):
        n = step + 1
        yield clock, f"\rFortschritt: {n - 1},{step % 10} %"


def clock_of_hours() -> Printed:
    for clock, _, step, left in nested(1, 100, 0.5):
        whole = int(left) + 24 * 3600
        yield (
            clock,
            f"cycle {step} of run, ETC={whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}\n",
        )


def yolo_bars() -> Printed:
    """The bars of Ultralytics since 8.3.200."""
    for clock, epoch, step, _ in nested(5, 30, 0.5, after=3):
        bar = f"{100 * (step + 1) // 30}% {'━' * (12 * (step + 1) // 30)}{'─' * (12 - 12 * (step + 1) // 30)}"
        yield (
            clock,
            f"\r\x1b[K{epoch + 1:>11}/5      2.36G      1.205      3.1      1.3        16        640: {bar} {step + 1}/30 2.0it/s 3.2s<9.1s",
        )
        if step == 29:
            yield clock + 0.1, "\n"


def yolox() -> Printed:
    for clock, epoch, step, left in nested(5, 40, 0.5, after=2):
        yield (
            clock,
            (
                f"2026-11-26 10:00:00 | INFO     | yolox.core.trainer:261 - epoch: {epoch + 1}/5, iter: {10 * (step + 1)}/400, "
                f"mem: 2989Mb, iter_time: 0.050s, data_time: 0.001s, total_loss: 9.1, lr: 1e-05, size: 640, ETA: {_clock(left, days=True)}\n"
            ),
        )


def swin() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=1):
        yield (
            clock,
            (
                f"[2026-11-26 10:00:00 swin_tiny](main.py 212): INFO Train: [{epoch}/5][{10 * step}/400]\teta {_clock((40 - step) * 0.5)} "
                f"lr 0.000001\t time 0.5012 (0.5112)\tloss 6.9 (6.9)\tgrad_norm 1.2 (1.3)\tmem 5102MB\n"
            ),
        )


def dcgan() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        yield (
            clock,
            f"[{epoch}/5][{10 * step}/400]\tLoss_D: 1.2\tLoss_G: 2.3\tD(x): 0.51\tD(G(z)): 0.4 / 0.2\n",
        )


def brats() -> Printed:
    """The trainer of MONAI's research contributions."""
    for clock, epoch, step, _ in nested(6, 40, 0.5, after=2):
        yield clock, f"Epoch {epoch}/6 {step}/40 loss: 0.9123 time 0.51s\n"


def timm_scheduled() -> Printed:
    yield 0.1, "Scheduled epochs: 5. LR stepped per epoch.\n"
    yield from timm()


def torchvision_options() -> Printed:
    yield (
        0.1,
        "Namespace(data_path='/data', model='resnet18', batch_size=32, epochs=6, workers=16, lr=0.1, start_epoch=0)\n",
    )
    yield from torchvision()


def mmseg() -> Printed:
    for clock, _, step, left in nested(1, 160, 0.5):
        yield (
            clock,
            (
                f"2026-11-26 10:00:00,123 - mmseg - INFO - Iter [{500 * (step + 1)}/80000]\tlr: 9.9e-03, "
                f"eta: {_clock(left, days=True)}, time: 0.151, data_time: 0.004, memory: 8192, decode.loss_ce: 1.1, loss: 1.1\n"
            ),
        )


def long_days() -> Printed:
    for clock, _, step, left in nested(1, 100, 0.5):
        whole = int(left) + 86400
        yield (
            clock,
            f"generation of model {step}: time left {whole // 86400}-{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}\n",
        )


def in_minutes() -> Printed:
    for clock, _, step, left in nested(1, 100, 0.5):
        yield (
            clock,
            f"model {step}, estimated time remaining (in min): {left / 60:.4f}\n",
        )


def labelled_bars() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5, after=1):
        yield (
            clock,
            ("\n" if not step else "")
            + _tqdm(f"[{epoch + 1}/5] loss 0.12: ", step + 1, 40),
        )


def fold_of_unknown_number() -> Printed:
    for clock, fold, epoch, _ in nested(5, 40, 0.5):
        yield clock, f"fold {fold + 1} epoch {epoch + 1}/40 loss=0.123\n"


def seed_of_unknown_number() -> Printed:
    for clock, seed, epoch, _ in nested(5, 40, 0.5):
        yield clock, f"seed={seed} epoch={epoch + 1}/40 loss=0.123\n"


def chain_of_unknown_number() -> Printed:
    """Stan's lines, where a share of the chain follows its iterations."""
    for clock, chain, step, _ in nested(4, 40, 0.5):
        n = 50 * (step + 1)
        yield (
            clock,
            f"Chain {chain + 1}: Iteration: {n:4} / 2000 [{n // 20:3}%]  (Warmup)\n",
        )


def replicas() -> Printed:
    for clock, replica, step, _ in nested(5, 40, 0.5):
        yield clock, f"Replica {replica + 1} of 5: step {step + 1} of 40\n"


def share_of_an_epoch() -> Printed:
    for clock, epoch, step, _ in nested(5, 40, 0.5):
        yield clock, f"Epoch {epoch + 1}/5: {100 * (step + 1) // 40}% loss=0.123\n"


def share_of_a_file() -> Printed:
    for clock, file, step, _ in nested(5, 40, 0.5):
        yield clock, f"file {file + 1}/5: {100 * (step + 1) // 40}%\n"
