"""Images are processed whole and then cropped, so most of that work is thrown away.

## What it measures

At its end, the deep run (the second, instrumented run) times each operation in the data set's list of transforms, with
the number of pixels that go in and come out. It fires when operations that could follow a crop precede one that keeps
at most half of the pixels, and the wasted part of their time is at least 15% of the sample and 10% of the step. Only
resizing and the pixelwise and mirroring operations of torchvision and albumentations are known to be movable; any
other operation is assumed to need the whole image.

## Why it matters

Jittering the colors of 512 x 512 pixels and keeping 128 x 128 of them is sixteen times the work.

## What to do

Crop first: put `RandomCrop`, `CenterCrop`, `RandomResizedCrop` before pixelwise operations. If the image is resized
and then cropped, crop the same region of the original and resize that.

## When it is wrong

Images only a little larger than the crop gain nothing, and nothing is reported. Color jitter whose contrast uses the
mean of the whole image gives slightly different results after a crop.
"""

from dataclasses import replace

from flatout.rules.core.bounds import input_gain, speedup_of_input
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.input_stages import TRANSFORMS
from flatout.rules.facts.loader_facts import fraction_of_batch, training_loader
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run, SamplePrefix, Stage
from flatout.units import format_ms, format_share

MIN_SHARE = 0.10
MIN_OF_SAMPLE = 0.15
MOST_KEPT = 0.5
# fmt: off
MOVABLE = frozenset(
    {
        "ColorJitter", "ConvertImageDtype", "GaussNoise", "Grayscale", "HorizontalFlip", "HueSaturationValue",
        "InvertImg", "Normalize", "PILToTensor", "RGBShift", "RandomBrightnessContrast", "RandomGamma",
        "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomPosterize", "RandomSolarize",
        "RandomVerticalFlip", "Resize", "ToDtype", "ToFloat", "ToGray", "ToImage", "ToTensor", "VerticalFlip",
    }
)
# fmt: on
SCALES = ("RandomResizedCrop", "RandomSizedCrop")
LIBRARIES = ("torchvision", "albumentations")


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN014: a tenth of the step is work on pixels that a later crop throws away."""
    loader = training_loader(run)
    if loader is None or loader.prefix is None or loader.prefix.seconds <= 0:
        return None
    crop = _crop(loader.stages)
    if crop is None:
        return None
    kept = crop.pixels_after / crop.pixels_before
    moved = [one for one in loader.stages[: loader.stages.index(crop)] if _can_follow(one, crop)]
    wasted_s = (1 - kept) * sum(one.seconds for one in moved)
    of_sample = min(1.0, wasted_s / loader.prefix.seconds)
    fraction = of_sample * (fraction_of_batch(loader, loader.sample_s) or 1.0)
    share = input_gain(breakdown, loader, fraction)
    if of_sample < MIN_OF_SAMPLE or share < MIN_SHARE:
        return None
    names = ", ".join(dict.fromkeys(one.name for one in sorted(moved, key=lambda one: -one.seconds)[:3]))
    return Finding(
        code="IN014",
        name="work-cropped-away",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction, headroom),
        location=loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is work on pixels that are cropped away: {names} "
        f"before {crop.name}, which keeps {format_share(kept)} of them. That wastes {format_ms(wasted_s * 1000)} of "
        f"the {format_ms(loader.prefix.seconds * 1000)} of a sample. {_cure(moved)}.",
        evidence=(
            Evidence("pixels before the crop", crop.pixels_before, ""),
            Evidence("pixels after it", crop.pixels_after, ""),
            Evidence("thrown away, of a sample", wasted_s * 1000, "ms"),
            Evidence("samples looked at", loader.prefix.checked, ""),
        ),
        fixes=("compiled-input", "loader-workers"),
    )


def _cure(moved: list[Stage]) -> str:
    if any(one.name == "Resize" for one in moved):
        return "Crop the same region of the original first, then resize that"
    return "Crop first"


def _crop(stages: tuple[Stage, ...]) -> Stage | None:
    """Return the last crop that keeps at most half of what it is given."""
    crops = [one for one in stages if "Crop" in one.name and one.library in LIBRARIES and one.pixels_before > 0]
    return next((one for one in reversed(crops) if 0 < one.pixels_after <= MOST_KEPT * one.pixels_before), None)


def _can_follow(stage: Stage, crop: Stage) -> bool:
    """Return whether an operation can move behind the crop; a `Resize` cannot move behind a crop that scales, too."""
    if stage.name == "Resize" and crop.name in SCALES:
        return False
    return stage.name in MOVABLE and stage.library in LIBRARIES


def _stage(name: str, ms: float, before: int = 512, after: int = 512, library: str = "torchvision") -> Stage:
    return Stage(name=name, library=library, seconds=ms / 1000, pixels_before=before**2, pixels_after=after**2)


_JITTER, _TENSOR = _stage("ColorJitter", 12), _stage("ToTensor", 0.3, 128, 128)
_CROP = _stage("RandomCrop", 0.1, 512, 128)
_SAMPLE = SamplePrefix(checked=4, seconds=0.020)
_LOADER = LoaderFacts(is_training=True, batch_size=32, fetches=40, prefix=_SAMPLE, stages=(_JITTER, _CROP, _TENSOR))
_RESIZING = (_stage("Resize", 8, 2000, 600), _stage("CenterCrop", 0.1, 600, 128), _TENSOR)


def _with(*stages: Stage) -> tuple[LoaderFacts, ...]:
    return (replace(_LOADER, stages=stages),)


RULE = Rule(
    code="IN014",
    name="work-cropped-away",
    check=check,
    stage=TRANSFORMS,
    fires_on=(
        example(step_ms=800, input=650, forward=100, loaders=(_LOADER,)),
        example(step_ms=800, input=300, forward=400, loaders=_with(*_RESIZING)),
    ),
    quiet_on=(
        example(step_ms=800, input=100, forward=600, loaders=(_LOADER,)),
        example(step_ms=800, input=650, loaders=_with(_CROP, _stage("ColorJitter", 1, 128, 128), _TENSOR)),
        example(step_ms=800, input=650, loaders=_with(_JITTER, _stage("RandomCrop", 0.1, 512, 448), _TENSOR)),
        example(step_ms=800, input=650, loaders=_with(_stage("Denoise", 12, library=""), _CROP, _TENSOR)),
        example(step_ms=800, input=650, loaders=_with(_stage("ElasticTransform", 12), _CROP, _TENSOR)),
        example(step_ms=800, input=650, loaders=_with(_stage("ColorJitter", 3), _CROP, _TENSOR)),
        example(step_ms=800, input=650, loaders=(replace(_LOADER, prefix=None),)),
    ),
)
