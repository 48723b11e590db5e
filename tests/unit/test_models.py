"""Real models under inspection: graphs, real results, and no trace in compiler or values."""

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter

from helpers import capture_graphs
from helpers.models import Cache, Decoder, ResNet, VisionTransformer


def vision_transformer():
    return VisionTransformer(), (torch.randn(2, 3, 32, 32),)


def resnet_in_training():
    return ResNet().train(), (torch.randn(2, 3, 16, 16),)


def decoder_with_cache():
    model, cache = Decoder().eval(), Cache()
    with torch.no_grad():
        model(torch.randint(0, 256, (2, 5)), cache)
    return model, (torch.randint(0, 256, (2, 1)), cache)


MODELS = (vision_transformer, resnet_in_training, decoder_with_cache)


def state_of(model, args):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    caches = [
        (cache.length, {k: tuple(t.clone() for t in pair) for k, pair in cache.entries.items()})
        for cache in args
        if isinstance(cache, Cache)
    ]
    return state, caches


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_real_model_gives_one_graph_the_eager_result_and_no_trace(make):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, args = make()
    counter = CompileCounter()
    learners = torch.compile(model, backend=counter)
    before = state_of(model, args)
    with torch.no_grad():
        capture = capture_graphs(model, *args)
        assert len(capture.graphs) == 1
        assert capture.changes_behaviour is None
        torch.testing.assert_close(state_of(model, args), before, rtol=0, atol=0)
        assert counter.frame_count == 0
        expected = model(*args)
        torch.testing.assert_close(capture.result, expected)
        learners(*make()[1]) if make is decoder_with_cache else learners(*args)
        compiles = counter.frame_count
        assert compiles == 1
        again = make()[1]
        capture_graphs(learners, *again)
        assert counter.frame_count == compiles


def test_training_through_the_captured_result_gives_eagers_gradients():
    torch.manual_seed(0)
    model, (images,) = resnet_in_training()
    capture_graphs(model, images).result.sum().backward()
    captured = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(images).sum().backward()
    for parameter, grad in zip(model.parameters(), captured, strict=True):
        torch.testing.assert_close(parameter.grad, grad)
