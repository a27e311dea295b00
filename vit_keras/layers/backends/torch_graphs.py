"""Recorded graphs of torch models, which `predict`, `evaluate` and `fit` replay.

Calling a Keras layer takes 30 to 100 µs, however small the layer. So a model is called once while a
recorder writes each torch operation into a graph: a function of the input and the weights. From
then on, the graph replaces the model for inputs of the same shape, and computes the same bits.
Recording takes little more time than the call itself; torch's `make_fx` takes twenty times as long.

With `jit_compile=True`, `torch.compile` compiles the graphs, including those for training. Keras
would compile the whole step, which takes minutes because it follows Python through the call of
every layer. In training, a graph also takes the masks of dropouts, which are drawn outside it.
"""

import contextlib
import contextvars
import functools
import itertools
import operator
import weakref
from collections.abc import Callable
from types import FunctionType

import keras
import numpy as np
import torch
from torch.autograd.function import BackwardCFunction
from torch.nn.modules import module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakTensorKeyDictionary

from vit_keras.layers import backends
from vit_keras.layers.backends.torch import compiling
from vit_keras.support.keras_internals import chain_of, policies_of, sublayers, tensors_of

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
REGULARIZER = operator.attrgetter("activity_regularizer")
SETTINGS = (int, float, str, FunctionType)  # such as rates, numbers and activations
MOST_GRAPHS = 16  # of a model, one per input shape
_current: contextvars.ContextVar["_Step | None"] = contextvars.ContextVar("step", default=None)


def make_step(model, name: str, make: Callable, force: bool):
    """Makes the function of a training, test or prediction step, which records its models.

    Args:
        model: The model whose step it is.
        name: The attribute that holds the function, such as "train_function".
        make: Keras' method that sets the attribute.
        force: Whether to make the function again if there is one.
    """
    if model.run_eagerly:
        return make(force)
    if getattr(model, name) is None or force:
        compiles, model.jit_compile = model.jit_compile, False
        try:
            make(True)
        finally:
            model.jit_compile = compiles
        setattr(model, name, _Step(getattr(model, name), compiles))
    return getattr(model, name)


def call_in_step(model, x, training):
    """A model's outputs, inside a step that records it; None if Keras has to call the model."""
    step = _current.get()
    if step is None or training is None or type(x) is not torch.Tensor:
        return None
    return step.call(model, x, training)


def predict_batches(model, batches) -> list:
    """The outputs of a model's prediction step for batches of images."""
    if model.training:  # a torch module's own mode, which Keras sets too
        model.eval()
    model.make_predict_function()
    outputs, before, place = [], None, placement()
    with torch.inference_mode():
        for batch in batches:
            images = place(batch)
            if before:
                before.synchronize()  # at most two batches are in a GPU's memory
            before = torch.cuda.current_stream().record_event() if images.is_cuda else None
            outputs.append(model.predict_function([(images,)]))
    return outputs


def placement() -> Callable:
    """Returns a function that copies a batch's arrays to the calling thread's device.

    A GPU copies while it computes. The function returns once everything is copied, so call it in
    another thread or before waiting for the GPU.
    """
    device = keras.ops.zeros(()).device
    return functools.partial(keras.tree.map_structure, functools.partial(_placed, device))


PLACED = ("float32", "int64", "int32", "uint8")  # Keras converts some of the other types


def _placed(device, array):
    if not isinstance(array, np.ndarray) or array.dtype.name not in PLACED:
        return array
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # or torch warns
    if device.type != "cuda":
        return tensor.to(device)
    with torch.cuda.stream(_copies(device)):
        copy = tensor.pin_memory().to(device, non_blocking=True)
    _copies(device).synchronize()
    copy.record_stream(torch.cuda.current_stream(device))
    return copy


@functools.cache
def _copies(device) -> torch.cuda.Stream:
    """The stream for copies, separate from the one that computes."""
    return torch.cuda.Stream(device)


class _Step:
    """A step function that records models while it runs."""

    def __init__(self, function, compiles):
        self.function, self.compiles = function, compiles
        self.plans: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self.compiled: dict[tuple, Callable] = {}  # by what the graph computes

    def __call__(self, data):
        with _during(self):
            return self.function(data)

    def call(self, model, x, training):
        plan = self.plans.get(model)
        if plan is None or not plan.holds():
            plan = self.plans[model] = _Plan(model)
        if plan.needs_layers(self.compiles):
            return None
        pieces = plan.pieces(training)
        kind_of = lambda x: (training, x.shape, x.dtype, x.device, torch.is_grad_enabled())
        if not pieces or (not self.compiles and plan.is_rare(kind_of(x), pieces)):
            return None
        for piece in pieces:
            kind = kind_of(x)
            if kind not in piece.graphs and not piece.is_eager:
                self._record(piece, x, training, kind)
            if piece.is_eager:
                x = piece.compute(x, training)
                continue
            function, masks = piece.graphs[kind]
            kept = (  # where each dropout keeps its input, drawn from its next seed
                keras.random.dropout(ones, dropout.rate, seed=dropout.seed_generator) != 0
                for dropout, ones in masks
            )
            x = function(x, *tensors_of(piece.variables), *kept)
        return x

    def _record(self, piece, x, training, kind):
        compute = functools.partial(piece.compute, training=training)
        with _during(None), compiling() if self.compiles else contextlib.nullcontext():
            recorded = _graph_of(compute, x, piece.layers, piece.dropouts() if training else [])
        if recorded is None:
            piece.is_eager = True
            return
        graph, masks = recorded
        again = training and piece.is_computed_again
        function = _function_of(graph, again)
        if self.compiles:
            what = kind, graph.code, tuple(_constants(graph)), again
            if what not in self.compiled:
                self.compiled[what] = torch.compile(function, fullgraph=True, dynamic=False)
            function = self.compiled[what]
        piece.graphs[kind] = function, masks


class _Plan:
    """A model in pieces for training and for inference, and the state its graphs depend on."""

    def __init__(self, model):
        self.model = weakref.ref(model)
        self.layers = sublayers(model)
        self.kinds = {type(layer) for layer in self.layers}
        self.is_known = all(k.__module__.startswith(("vit_keras.", "keras.")) for k in self.kinds)
        self.is_known &= not any("call" in vars(layer) for layer in self.layers)
        self.is_plain = all(type(layer.dtype_policy) is keras.DTypePolicy for layer in self.layers)
        self.hooks = [getattr(layer, name) for layer in self.layers for name in HOOKS]
        self.settings = []  # the attributes of each layer, and what takes its settings from them
        for fields in map(vars, self.layers):
            names = [k for k, x in fields.items() if type(x) in SETTINGS and k[0] != "_"]
            if names:
                self.settings.append((fields, operator.itemgetter(*names)))
        self.adaptable = [layer for layer in self.layers if hasattr(layer, "lora_enabled")]
        self.made: dict[bool, list[_Piece]] = {}
        self.seen: set[tuple] = set()
        self.state = self._state()

    def _state(self) -> tuple:
        """The state, besides weight values, that graphs depend on; compared in 0.1 ms."""
        return (
            backends.chosen(),
            policies_of(self.layers),
            tuple(layer.lora_enabled for layer in self.adaptable),
            tuple(kind.call for kind in self.kinds),
            [of(fields) for fields, of in self.settings],
        )

    def holds(self) -> bool:
        """Whether the layers are unchanged."""
        return self.state == self._state()

    def needs_layers(self, compiles) -> bool:
        """Whether hooks, regularizers, quantization, devices or unknown layers require Keras."""
        return (
            any(self.hooks)
            or any(map(REGULARIZER, self.layers))
            or module._has_any_global_hook()
            or keras.distribution.distribution() is not None
            or not (compiles or (self.is_known and self.is_plain))
        )

    def is_rare(self, kind, pieces) -> bool:
        """Whether recording would not pay off, as for a kind of input that occurs only once."""
        is_first, graphs = kind not in self.seen, pieces[0].graphs
        self.seen.add(kind)
        is_new = kind not in graphs and (is_first or len(graphs) == MOST_GRAPHS)
        return is_new or any(piece.is_eager for piece in pieces)

    def pieces(self, training) -> list["_Piece"]:
        """The pieces in order; none if the model has to be divided but cannot be."""
        if training not in self.made:
            model, is_divided = self.model(), training and any(map(_kind_of, self.layers))
            pieces = _divided(chain_of(model)) if is_divided else [_Piece([model])]
            self.made[training] = list(pieces)
        return self.made[training]


class _Piece:
    """Layers of a model that are called one after another."""

    def __init__(self, layers, kind=""):
        self.layers, self.is_eager = layers, kind == "random"
        self.is_computed_again = kind == "again"
        self.variables = _weights_of(layers)
        # By kind of input: the function, and the dropouts whose masks it takes, each with ones in
        # the shape of its mask.
        self.graphs: dict[tuple, tuple[Callable, list]] = {}

    def compute(self, x, training):
        if self.is_computed_again:
            return self.layers[0].compute(x, training)
        for layer in self.layers:
            call = keras.Model.__call__ if isinstance(layer, keras.Model) else type(layer).__call__
            x = call(layer, x, training=training)
        return x

    def dropouts(self) -> list:
        """The dropouts whose masks can be drawn in advance."""
        every = [y for layer in self.layers for y in sublayers(layer)]
        return [y for y in every if hasattr(y, "drawn") and y.rate > 0]


def _kind_of(layer) -> str:
    """Why training needs a layer in its own piece: "again", "random", or "" if it does not."""
    if getattr(layer, "rematerialize", False):
        return "again"
    is_random = getattr(layer, "seed_generator", None) is not None and not hasattr(layer, "drawn")
    return "random" if is_random else ""


def _divided(chain):
    """The pieces of a chain of layers."""
    kind_of = lambda layer: next(filter(None, map(_kind_of, sublayers(layer))), "")
    for kind, layers in itertools.groupby(chain, kind_of):
        if kind:
            yield from (_Piece([layer], kind) for layer in layers)
        else:
            yield _Piece(list(layers))


def _weights_of(layers) -> list[keras.Variable]:
    return [variable for layer in layers for variable in layer.weights]


class _NotRecordedError(Exception):
    """An operation that no graph can hold."""


class _Recorder(TorchDispatchMode):
    """While open, writes torch's operations into a graph.

    Args:
        inputs: The tensors that the graph is a function of.
    """

    def __init__(self, inputs):
        super().__init__()
        self.graph = torch.fx.Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.nodes = WeakTensorKeyDictionary()  # keeps no tensor in memory
        for tensor in inputs:
            self.add_input(tensor)

    def add_input(self, tensor):
        """Makes the graph a function of one more tensor."""
        self.nodes[tensor] = self.graph.placeholder(f"input_{len(self.graph.nodes)}")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default and args[0] not in self.nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name], self.nodes[args[0]] = args[0], self.graph.get_attr(name)
        if func is torch.ops.aten._local_scalar_dense.default or any(
            isinstance(x, torch.Generator) for x in tree_leaves((args, kwargs))
        ):
            raise _NotRecordedError(f"{func} depends on a value or on a generator")
        inputs, others = self.nodes_of(args), self.nodes_of(kwargs)
        outputs = func(*args, **kwargs)
        tensors = tree_leaves(outputs)
        if not func._schema.is_mutable and all(y in self.nodes for y in tensors):
            return outputs  # for instance after a cast to the same type
        node = self.graph.call_function(func, inputs, others)
        if isinstance(outputs, torch.Tensor):
            self.nodes[outputs] = node
            return outputs
        for place, tensor in enumerate(tensors):
            if isinstance(tensor, torch.Tensor):
                self.nodes[tensor] = self.graph.call_function(operator.getitem, (node, place))
        return outputs

    def nodes_of(self, values):
        """`values` with nodes for tensors; each tensor must come from an input or a constant."""

        def node_of(tensor):
            if tensor not in self.nodes:
                raise _NotRecordedError(f"a tensor {tuple(tensor.shape)} of unknown origin")
            return self.nodes[tensor]

        return tree_map_only(torch.Tensor, node_of, values)


def _graph_of(compute: Callable, x, layers, dropouts) -> tuple | None:
    """Records the computation of layers in one call.

    Args:
        compute: A function that calls the layers on a tensor.
        x: A tensor like the ones that the graph will take.
        layers: The layers.
        dropouts: Their dropouts in training, whose masks the graph takes.

    Returns:
        The graph, a function of a tensor, the tensors of `_weights_of(layers)` and the masks; and
        for each mask, its dropout and ones in its shape. None if the layers change their weights or
        seeds, or if a graph cannot hold an operation.
    """
    variables, masks = _weights_of(layers), []
    weights = tensors_of(variables)
    x = x.detach().requires_grad_(x.requires_grad)
    scope = keras.StatelessScope(list(zip(variables, weights)))
    before = {id(variable): weight for variable, weight in zip(variables, weights)}
    recorder = _Recorder([x, *weights])

    def drop(dropout, x):
        """Computes dropout as Keras does from a mask, which becomes an input of the graph."""
        noise = dropout.noise_shape or x.shape
        shape = [size if part is None else part for part, size in zip(noise, x.shape)]
        one = torch.ones((), dtype=x.dtype, device=x.device)
        masks.append((dropout, one.expand(shape)))  # takes no memory
        mask = torch.ones(shape, dtype=torch.bool, device=x.device)
        recorder.add_input(mask)
        return torch.where(mask, x / (1 - dropout.rate), torch.zeros_like(x))

    for dropout in dropouts:
        dropout.drawn = functools.partial(drop, dropout)
    # Constants in a graph that gradients pass through must not be inference tensors.
    mode = contextlib.nullcontext() if torch.is_grad_enabled() else torch.inference_mode()
    try:
        with mode, recorder, scope:
            y = compute(x)
    except _NotRecordedError:
        return None
    finally:
        for dropout in dropouts:
            dropout.drawn = None
    every = [variable for layer in layers for variable in layer.variables]
    changed = any(scope.get_current_value(v) is not before.get(id(v)) for v in every)
    if changed or _has_own_gradient(y):
        return None
    recorder.graph.output(recorder.nodes_of(y))
    recorder.graph.eliminate_dead_code()
    return torch.fx.GraphModule(recorder.constants, recorder.graph), masks


def _has_own_gradient(y) -> bool:
    """Whether a gradient comes from a `torch.autograd.Function`, which a graph cannot hold."""
    nodes, seen = [tensor.grad_fn for tensor in tree_leaves(y)], set()
    while nodes:
        node = nodes.pop()
        if isinstance(node, BackwardCFunction):
            return True
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
    return False


def _constants(graph: torch.fx.GraphModule):
    """The values of the tensors in a graph, such as the angles of rotary positions."""
    for name, tensor in sorted(graph.named_buffers()):
        values = tensor.detach().cpu().contiguous()
        yield name, str(values.dtype), values.shape, values.view(torch.uint8).numpy().tobytes()


def _function_of(graph, is_computed_again):
    """A function of a graph; its backward pass computes the graph again if requested."""
    call = functools.partial(checkpoint, graph, use_reentrant=False) if is_computed_again else graph

    def compute(*tensors):
        return call(*tensors)

    compute.__code__ = compute.__code__.replace()  # torch compiles a code object only a few times
    return compute


@contextlib.contextmanager
def _during(step):
    token = _current.set(step)
    try:
        yield
    finally:
        _current.reset(token)
