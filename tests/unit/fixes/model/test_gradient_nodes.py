"""A compiled graph's node among the gradients: which outputs and inputs it connects."""

import pytest
import torch
from torch import fx

from flatout.fixes.model.gradient_nodes import all_from, edges, node_of, numbers_of, sources


class Pair(torch.autograd.Function):
    """Stands for a compiled graph with two outputs."""

    @staticmethod
    def forward(ctx, a, b):
        return a * 2, b * 3

    @staticmethod
    def backward(ctx, one, other):
        return one * 2, other * 3


@pytest.fixture
def graph():
    """Inputs, outputs and the node between them."""
    leaf = torch.ones(2, requires_grad=True)
    inner = torch.ones(2, requires_grad=True) * 1
    plain = torch.ones(2)
    outputs = Pair.apply(leaf, inner)
    return (plain, leaf, inner), outputs, outputs[0].grad_fn


def test_outputs_are_known_by_their_numbers(graph):
    args, (first, second), node = graph
    assert numbers_of((3, second, first), node) == {1: (1, False), 0: (2, False)}
    assert numbers_of((args[0],), node) == {}


def test_of_several_views_of_one_tensor_that_tensor_is_the_output(graph):
    _, (first, second), node = graph
    views = (first[:1], first[1:], second)
    assert numbers_of(views, node) == {0: (0, True), 1: (2, False)}


def test_inputs_are_found_by_what_they_are_and_by_where_they_come_from(graph):
    args, _, node = graph
    assert list(edges(node, args)) == [1, 2]


def test_every_output_that_has_a_gradient_comes_from_the_node_or_is_an_input(graph):
    args, outputs, node = graph
    assert all_from((*outputs, 3, torch.ones(1)), node, args)
    assert all_from((*outputs, args[1]), node, args)
    assert all_from((outputs[0][:1],), node, args)
    assert not all_from((*outputs, args[1] * 1), node, args)


def test_only_a_node_of_compiled_code_is_one(graph):
    _, outputs, node = graph
    assert node_of(outputs) is None
    type(node)._forward_cls.compiled_bw = None
    try:
        assert node_of((3, *outputs)) is node
        assert node_of([outputs[0][:1]]) is node
    finally:
        del type(node)._forward_cls.compiled_bw


def test_the_inputs_that_an_output_depends_on():
    graph = fx.Graph()
    a, b, c = (graph.placeholder(name) for name in "abc")
    both = graph.call_function(torch.add, (a, b))
    graph.output((both, graph.call_function(torch.neg, (c,)), graph.call_function(torch.mul, (both, c))))
    assert sources(graph, {0}) == {0, 1}
    assert sources(graph, {1}) == {2}
    assert sources(graph, {0, 1}) == sources(graph, {2}) == {0, 1, 2}
