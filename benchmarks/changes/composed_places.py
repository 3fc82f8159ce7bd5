"""Where settings live: objects, classes, modules, closures, the environment, files, transforms."""

from state import State

SETTINGS = """
@dataclasses.dataclass
class Augmentation:
    scale: float = 1.0
    bands: list = dataclasses.field(default_factory=lambda: [1.0, 1.0])


@dataclasses.dataclass
class Settings:
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
"""
SCALE = """
class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x
"""
FACTORY = """
def make_scaling():
    factor = 1.0

    def scaling(x):
        return x * factor

    def set_factor(new):
        nonlocal factor
        factor = new

    return scaling, set_factor
"""
DEFAULT = """
def scaling(x, state=[1.0], *, power={"p": 1}):
    return x * state[0] ** power["p"]
"""
PARTIAL = """
def scaled(x, factor, offsets):
    return x * factor + offsets[0]
"""
PROPERTY = """
@property
def scale(self):
    return self._scale

@scale.setter
def scale(self, value):
    self._scale = value
    self._squared = value * value
"""
MODES = """
class Mode(enum.Enum):
    WEAK = 1.0
    STRONG = 3.0
"""
OTHER = """
class Doubled(Samples):
    def __getitem__(self, index):
        rows, label = super().__getitem__(index)
        return rows * 2, label
"""
SCALAR = ("1.0", "0.5", "2.0 + epoch")

PLACES = (
    State(
        "attribute",
        "self.scale = 1.0",
        "self.scale",
        {
            "assignment": "data.scale = {new}",
            "setattr": 'setattr(data, "scale", {new})',
            "vars": 'vars(data)["scale"] = {new}',
            "dict_update": "data.__dict__.update(scale={new})",
            "object_setattr": 'object.__setattr__(data, "scale", {new})',
        },
        by_row=False,
        names=("scale",),
    ),
    State(
        "class_attribute",
        "pass",
        "self.scale * self.table[0]",
        {
            "of_the_class": "Samples.scale = {new}",
            "shadowed": "data.scale = {new}",
            "type": "type(data).scale = {new}",
            "list_of_the_class": "Samples.table[0] = {new}",
            "deleted": "data.scale = 3.0\nif epoch % 2:\n    del data.scale",
        },
        methods="scale = 1.0\ntable = [1.0]",
        by_row=False,
        once=("deleted",),
        names=("scale", "table"),
    ),
    State(
        "property",
        "self.scale = 1.0",
        "self._squared",
        {"setter": "data.scale = {new}", "below": "data._squared = {new}"},
        methods=PROPERTY,
        by_row=False,
        names=("scale", "_scale", "_squared"),
    ),
    State(
        "dataclass_settings",
        "self.settings = Settings()",
        "self.settings.augmentation.scale * self.settings.augmentation.bands[index % 2]",
        {
            "attribute": "data.settings.augmentation.scale = {new}",
            "list_item": "data.settings.augmentation.bands[1] = {new}",
            "replaced": "data.settings = dataclasses.replace(data.settings, augmentation=Augmentation({new}))",
            "alias": "augmentation = data.settings.augmentation\naugmentation.scale = {new}",
        },
        top=SETTINGS,
        by_row=False,
        names=("scale", "bands", "settings"),
    ),
    State(
        "namespace",
        "self.args = ARGS",
        "self.args.scale",
        {
            "attribute": "ARGS.scale = {new}",
            "of_the_data": "data.args.scale = {new}",
            "vars": 'vars(ARGS)["scale"] = {new}',
        },
        top="ARGS = argparse.Namespace(scale=1.0, seed=0)",
        by_row=False,
        names=("scale",),
    ),
    State(
        "global_number",
        "pass",
        "SCALE",
        {"global": "global SCALE\nSCALE = {new}", "globals": 'globals()["SCALE"] = {new}'},
        top="SCALE = 1.0",
        by_row=False,
        names=("SCALE",),
    ),
    State(
        "global_config",
        "pass",
        'CONFIG["scale"] * TABLE[index % 4]',
        {
            "item": 'CONFIG["scale"] = {new}',
            "update": "CONFIG.update(scale={new})",
            "array": "TABLE[2] = {new}",
            "array_all": "TABLE[:] = TABLE * 2",
        },
        top='CONFIG = {"scale": 1.0}\nTABLE = np.ones(4)',
        by_row=False,
        once=("array_all",),
        names=("CONFIG", "TABLE"),
    ),
    State(
        "module_attribute",
        "pass",
        "settings.scale",
        {"attribute": "settings.scale = {new}", "setattr": 'setattr(settings, "scale", {new})'},
        top='settings = types.ModuleType("settings")\nsettings.scale = 1.0\nsys.modules["settings"] = settings',
        by_row=False,
        names=("scale",),
    ),
    State(
        "enum_mode",
        "self.mode = Mode.WEAK",
        "self.mode.value",
        {"member": "data.mode = {new}"},
        top=MODES,
        by_row=False,
        values=("Mode.WEAK", "Mode.STRONG", "list(Mode)[epoch % 2]"),
        names=("mode",),
    ),
    State(
        "closure",
        "self.transform, self.set_factor = make_scaling()",
        "self.transform(1.0)",
        {"setter": "data.set_factor({new})", "cell": "data.transform.__closure__[0].cell_contents = {new}"},
        top=FACTORY,
        by_row=False,
        names=("factor", "transform"),
    ),
    State(
        "default_argument",
        "self.transform = scaling",
        "self.transform(1.0)",
        {
            "list_item": "scaling.__defaults__[0][0] = {new}",
            "defaults": "scaling.__defaults__ = ([{new}],)",
            "keyword_default": 'scaling.__kwdefaults__["power"]["p"] = 2 + epoch\nscaling.__defaults__[0][0] = 2.0',
        },
        top=DEFAULT,
        by_row=False,
        once=("keyword_default",),
        names=("scaling", "transform"),
    ),
    State(
        "partial",
        "self.offsets = [0.0]\nself.transform = functools.partial(scaled, factor=1.0, offsets=self.offsets)",
        "self.transform(1.0)",
        {
            "replaced": "data.transform = functools.partial(scaled, factor={new}, offsets=data.offsets)",
            "keywords": 'data.transform.keywords["factor"] = {new}',
            "argument": "data.offsets[0] = {new}",
        },
        top=PARTIAL,
        by_row=False,
        names=("transform", "factor", "offsets"),
    ),
    State(
        "transform_object",
        "self.transform = Scale(1.0)",
        "self.transform(1.0)",
        {
            "attribute": "data.transform.factor = {new}",
            "replaced": "data.transform = Scale({new})",
            "call_patched": "Scale.__call__ = lambda self, x: x * 7 + epoch",
            "lambda": "data.transform = lambda x: x * 3 + epoch",
        },
        top=SCALE,
        by_row=False,
        once=("call_patched", "lambda"),
        names=("factor", "transform", "__call__"),
    ),
    State(
        "composed_transforms",
        "self.transform = Compose([Scale(1.0), Compose([Scale(1.0), Scale(2.0)])])",
        "self.transform(1.0)",
        {
            "nested_attribute": "data.transform.transforms[1].transforms[0].factor = {new}",
            "append": "data.transform.transforms.append(Scale(1.5))",
            "pop": "data.transform.transforms[-1].transforms.pop()\ndata.transform.transforms[-1].transforms.append(Scale(5.0))",
            "item": "data.transform.transforms[0] = Scale({new})",
        },
        top=SCALE,
        by_row=False,
        once=("append", "pop"),
        names=("factor", "transforms"),
    ),
    State(
        "own_methods",
        "pass",
        "self.load(index)",
        {
            "method_patched": "Samples.load = lambda self, index: 5.0",
            "instance_method": "data.load = lambda index: index / 4",
            "bound_method": "data.load = types.MethodType(lambda self, index: len(self) / 64, data)",
            "getitem_patched": "Samples.__getitem__ = lambda self, i, old=Samples.__getitem__: old(self, len(self) - 1 - i)",
            "other_class": "data.__class__ = Doubled",
        },
        methods="def load(self, index):\n    return 1.0",
        top="#late" + OTHER,
        by_row=False,
        once=("method_patched", "instance_method", "bound_method", "getitem_patched", "other_class"),
        names=("load", "__getitem__", "__class__"),
    ),
)
