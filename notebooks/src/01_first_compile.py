# ---
# title: Compile a model and time it honestly
# minutes: 40
# needs: lesson 00
# priority: 1
# ---

# %% [markdown]
# # Compile a model and time it honestly
#
# {{facts}}
#
# One line compiles a model. Finding out whether that *helped* takes care: most wrong claims
# about `torch.compile`, for and against, come from a clock that was read in the wrong place.

# %% [markdown]
# ## What you'll do
#
# Compile a small vision transformer, time its first and its later calls, watch one function
# win and another lose, walk into four traps of timing on purpose, and save and load weights.

# %% [markdown]
# ## What you'll learn
#
# - compile a model, and tell its first call from its later ones
# - check that compiled results agree with plain PyTorch's
# - say why one function gains from compiling and another loses
# - spot four flaws that make a timing worthless
# - save and load weights, and say what the compiled wrapper leaves out

# %% [markdown]
# ## What you'll need
#
# Lesson 00, and to have used a `torch.nn.Module` before. Two words: *eager* is plain PyTorch,
# which does one operation after the other as Python reaches it. A *compiler* reads a whole
# piece of code first, and then writes faster code that does the same.

# %% [markdown]
# ## Setup
#
# `device` is `"auto"`, `"cpu"` or `"cuda"`. The lesson only runs models forward and never
# trains, so gradients are switched off.

# %% tags=["parameters"]
device = "auto"

# %%
import itertools
import math
import statistics
import time

import torch
from torch import nn

from helpers import begin_lesson, compilation_count, expect_error, progress
from helpers.models import VisionTransformer

started = time.perf_counter()
torch.set_grad_enabled(False)
device = begin_lesson("01", device=device)

# %% [markdown]
# ## Compile a model
#
# A *vision transformer* cuts an image into patches and lets them look at each other. This one
# is real but tiny, and has random weights: nothing is downloaded.

# %%
torch.manual_seed(0)
model = VisionTransformer().eval().to(device)
images = torch.randn(8, 3, 32, 32, device=device)
expected = model(images)
print("images", tuple(images.shape), "-> scores", tuple(expected.shape))

# %% [markdown]
# A clock for one call. On a GPU, a call returns before the work is done; `synchronize` waits
# for it. Keep that in mind for later.


# %%
def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def timed_call(fn, *args):
    wait()  # until earlier work is done
    start = time.perf_counter()
    result = fn(*args)
    wait()
    return 1000 * (time.perf_counter() - start), result


# %% [markdown]
# **Predict.** We compile the model and call it 20 times.
#
# 1. Which of these is slow: the line with `torch.compile`, the first call, the second?
# 2. How many of the 20 calls will compile something?

# %%
torch.compiler.reset()  # forget what was compiled, so that this cell can run twice
compiled = torch.compile(model)
times, compilations = [], []
with progress("20 calls of the compiled model", expected_s=25):
    for _ in range(20):
        before = compilation_count()
        milliseconds, result = timed_call(compiled, images)
        times.append(milliseconds)
        compilations.append(compilation_count() - before)

# %% [markdown]
# **Inspect.** First when something was compiled, then the times.

# %% tags=["nbval-check-output"]
print("compilations in calls 1 to 20:", compilations)

# %%
print("first call:", round(times[0]), "ms")
print("calls 2 to 5:", [round(one, 2) for one in times[1:5]], "ms")
print("median of calls 6 to 20:", round(statistics.median(times[5:]), 2), "ms")

# %% [markdown]
# **Explain.** `torch.compile(model)` only wraps the model. The *first call* compiles, because
# only then are shape, dtype and device of the input known. From then on the code is there.
#
# It belongs to the function that was compiled (here the model's `forward`), not to the wrapper:
# a second `torch.compile(model)` finds it again, and compiles nothing. That is why the cell
# begins with `torch.compiler.reset()`, as others below do: so they show the same when run again.
#
# A call is **warm** when nothing is left to prepare. Several things warm up: the compiled
# code in this process, memory that PyTorch keeps for reuse, the processor's own caches and
# clock speed. So the second call may still be slower than the tenth.
#
# There is also a cache on disk. If you run this lesson again, the first call finds its code
# there and is much shorter, but not free: capture happens in every new process.

# %% [markdown]
# ### Did it compute the same?
#
# **Predict.** Are the compiled results equal to eager's, bit for bit? Or only close?

# %% tags=["nbval-check-output"]
close = torch.allclose(result, expected, rtol=1e-3, atol=1e-3)
print("within 0.001 + 0.1 % of eager:", close)

# %%
print("bit for bit equal:", torch.equal(result, expected))
print("largest difference:", (result - expected).abs().max().item())

# %% [markdown]
# **Explain.** Numbers in a computer are rounded, so `(a + b) + c` and `a + (b + c)` can differ
# in the last digits. Compiled code adds in another order, and may keep a value in a register
# where eager rounds it into memory. Neither is the true answer. So: compare with
# `torch.allclose`, and *say* the tolerance. For `float32` on a CPU, 0.0001 is usual. A GPU may
# round the inputs of a convolution to about three digits (TF32), so we allow 0.001;
# `bfloat16` keeps only two to three digits and needs ten times more.

# %% [markdown]
# ### The honest way
#
# `measure` does by rule what we did by hand: it times the first call alone, warms up until
# nothing compiles any more, waits for the GPU, takes many samples, and gives their median
# with an interval. Compare two of its results, never two single calls.
#
# `compare` needs two: a **baseline**, what you have now (here eager), and a **candidate**, what
# might replace it (here compiled). It divides the time of the baseline by that of the candidate.
#
# **Predict.** The model is tiny. Does compiling it gain anything on this machine?

# %%
from helpers import compare, measure

eager_calls = measure(model, images, label="eager", repeats=50)
compiled_calls = measure(compiled, images, label="compiled", repeats=50)
print(eager_calls)
print(compiled_calls)

# %%
print(compare(eager_calls, compiled_calls).summary())

# %% [markdown]
# **Explain.** "No difference shown" is an answer too: the two are closer than two measurements
# of the same code may be, or other programs made the figures too uncertain. For a model as tiny
# as this, compiling may well gain nothing, most of all on a CPU. (`compiled` was warm already, so
# here `measure`'s "first call" is short too. "On the device" is measured in calls of its own, so
# it need not be less than the time of a whole call.)

# %% [markdown]
# ## See it win, and see it lose
#
# Two functions. `rms_norm` is a step of most language models: it scales each row to the same
# size. `residual` is the end of a block in a residual network.


# %%
def rms_norm(x, weight):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x * scale * weight


def residual(x, r):
    return torch.relu(x) + r


# %% [markdown]
# `race` measures a function eager (the baseline) and compiled (the candidate), compares them, and
# puts the verdict first. Figures and accuracy are folded below it.
#
# **Predict.** `rms_norm` gets four million numbers, `residual` only 256. Which gains, which
# loses?

# %%
from helpers import race

rows = 4096 if device == "cpu" else 65536
x, weight = torch.randn(rows, 1024, device=device), torch.randn(1024, device=device)
big_race = race(rms_norm, x, weight, recorded="rms_norm")
big_race

# %%
small, other = (torch.randn(16, 16, device=device) for _ in range(2))
race(residual, small, other, recorded="residual")

# %% [markdown]
# **Inspect.** How many operations does each function have? Each is one trip through memory.

# %% tags=["nbval-check-output"]
from helpers import capture_graphs

for fn, args in ((rms_norm, (x, weight)), (residual, (small, other))):
    [graph] = capture_graphs(fn, *args).graphs
    print(f"{fn.__name__}: {len(graph.calls)} operations on {args[0].dim()}-D tensors")

# %% [markdown]
# **Explain.** Eager runs each operation by itself: read everything from memory, do a little
# arithmetic, write everything back, six times. Compiled code *fuses* them: read once, compute
# all, write once. For big tensors memory is the slow part, so fusing wins.
#
# But each compiled call has a fixed cost: before it may use the code, it checks that this
# call looks like the one it was compiled for. For 256 numbers and two operations, that check
# costs more than all the work. **Many operations on much data gain. Few operations on little
# data lose.** That holds on a CPU and on a GPU; where the border lies, only measuring tells.
#
# ### When has it paid back?
#
# The first call is a price, each later call earns a little of it back. So compiling has paid
# back after about
#
# > first call / (eager call - later call)
#
# calls. A gain of a millisecond earns a first call of ten seconds back after ten thousand calls;
# no gain never does. For the race with `rms_norm`, just now:

# %%
first, eager_ms = 1000 * big_race.compiled.first_call_s, big_race.eager.wall_ms
gain = eager_ms - big_race.compiled.wall_ms
print(f"first call {first:.0f} ms, eager call {eager_ms:.2f} ms,", end=" ")
print(f"gain per later call {gain:.2f} ms")
if gain > 0:
    print("paid back after about", math.ceil(first / gain), "calls")
else:
    print("no gain: compiling never pays back")
if big_race.eager.disturbed or big_race.compiled.disturbed:
    print("Other programs were running: measure again before relying on this.")

# %% [markdown]
# **Your turn.** Race a function of your own: any function of tensors will do, such as
# `race(torch.nn.functional.gelu, x)` or three lines of your own model.

# %% [markdown]
# ## Catch four ways to fool yourself
#
# Each of the next parts is a mistake that people really publish. We make it on purpose.
#
# ### 1. Not waiting for the GPU
#
# **Predict.** We time eight large matrix products without `synchronize`, then with it. On a
# GPU, which is shorter? On a CPU?

# %%
width = 256 if device == "cpu" else 4096
a, b = (torch.randn(width, width, device=device) for _ in range(2))


def work():
    y = a
    for _ in range(8):
        y = torch.tanh(y @ b)
    return y


# %%
timed_call(work)  # warm
without, waited = [], []
for _ in range(9):
    start = time.perf_counter()
    work()
    without.append(1000 * (time.perf_counter() - start))
    waited.append(timed_call(work)[0])
print(f"medians on the {device}: {statistics.median(without):.3f} ms without waiting,")
print(f"{statistics.median(waited):.3f} ms with waiting")
if device == "cpu":
    print("A CPU has nothing to wait for: any difference between the two is noise.")

# %%
from helpers import without_waiting_view

without_waiting_view()

# %% [markdown]
# **Explain.** A GPU takes orders: Python puts work into a queue and goes on. Stop the clock
# there, and you have timed the ordering, not the work. On a CPU this flaw cannot be shown:
# a call returns when its result is there, so both times are those of the work, and what is
# between them is noise.

# %% [markdown]
# ### 2. Compile time inside the average
#
# **Predict.** The 20 times from above, first call included: is their mean near the median?

# %%
mean, median = statistics.mean(times), statistics.median(times)
print(f"mean of all 20 calls: {mean:.1f} ms; median: {median:.2f} ms")
print(f"the first call is {times[0] / sum(times):.0%} of the total")

# %% [markdown]
# **Explain.** One compilation drowns nineteen calls. Somebody who reports that mean says
# "compiled is slower", and measured the compiler. Give three numbers: first call, later
# calls, and after how many calls the first has paid back.

# %% [markdown]
# ### 3. Another shape warmed up
#
# **Predict.** We warm up with 32 rows, as one should, and then time a call with 48 rows. Is
# that call warm? And after that: are 56 and 100 rows? And a single row?

# %%
torch.manual_seed(0)
layers = [nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)]
mlp = nn.Sequential(*layers).eval().to(device)


def score(x):
    return mlp(x)


# %%
torch.compiler.reset()
compiled_score, counts, took = torch.compile(score), [], []
with progress("compiling for several shapes", expected_s=15):
    for rows in (32, 32, 48, 48, 56, 100, 1, 1):
        x, before = torch.randn(rows, 256, device=device), compilation_count()
        took.append(timed_call(compiled_score, x)[0])
        counts.append(compilation_count() - before)

# %% tags=["nbval-check-output"]
print("compilations with 32, 32, 48, 48, 56, 100, 1, 1 rows:", counts)

# %%
print("milliseconds:", [round(one, 2) for one in took])

# %% [markdown]
# **Explain.** The first code was made for exactly 32 rows. A call with 48 compiles again, and the
# clock measured that. Having seen two sizes, the compiler makes the second code for *any* number
# of rows, so 56 and 100 cost nothing; but 1 is a special case, and compiles once more. Lesson 04
# explains the rule. Until then: warm up with exactly what you time, same shapes, dtypes, flags.

# %% [markdown]
# ### 4. A second compilation inside the loop
#
# Real data sets seldom divide evenly: the last batch of an epoch is smaller.
#
# **Predict.** 39 batches of 64 rows, then one of 40. What does the average tell?


# %%
def epoch_step(x):
    return mlp(x)


sizes = [64] * 39 + [40]
batches = [torch.randn(rows, 256, device=device) for rows in sizes]
torch.compiler.reset()
step, counts, took = torch.compile(epoch_step), [], []
with progress("one epoch of 40 batches", expected_s=15):
    for x in batches:
        before = compilation_count()
        took.append(timed_call(step, x)[0])
        counts.append(compilation_count() - before)

# %% tags=["nbval-check-output"]
print("calls that compiled:", [call for call, count in enumerate(counts, 1) if count])

# %%
print(f"without the first call: mean {statistics.mean(took[1:]):.2f} ms,", end=" ")
print(f"median {statistics.median(took[1:]):.2f} ms; call 40 took {took[-1]:.0f} ms")

# %% [markdown]
# Leaving out the first call was not enough. Now the same with `measure`, on a new function,
# going round and round through such an epoch:


# %% tags=["nbval-check-output"]
def another_step(x):
    return mlp(x)


torch.compiler.reset()
again, endless = torch.compile(another_step), itertools.cycle(batches)
with expect_error("MeasurementRefused"):
    measure(lambda: again(next(endless)), repeats=60)

# %% [markdown]
# **Explain.** `measure` watches the compiler while the clock runs. If something compiles, it
# gives no figure at all, and says why. A median might have hidden it; a mean would have been
# wrong. (How to avoid the second compilation is for lesson 04: with `dynamic=True`, the first
# code serves many sizes already.)

# %% [markdown]
# ## Save, load, and know the wrapper
#
# `torch.compile(model)` returns a wrapper around your model, and keeps the model itself as its
# attribute `_orig_mod` (the original module). That shows in three places. From here on we use
# `backend="eager"`: Dynamo captures, and nothing is generated. It is quick, and it shows the same.


# %%
class Walker(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.step(x).tanh()

    def walk(self, x, steps=3):
        for _ in range(steps):
            x = self(x)
        return x


# %% [markdown]
# ### Weights
#
# **Predict.** Which names have the weights in `state_dict` of the wrapper? Can you load that
# into a plain model, and the other way round?

# %%
plain, position = Walker(), torch.ones(2, 3)
wrapper = torch.compile(plain, backend="eager")

# %% tags=["nbval-check-output"]
print("_orig_mod is the plain model:", wrapper._orig_mod is plain)
print("plain:  ", list(plain.state_dict()))
print("wrapper:", list(wrapper.state_dict()))

# %% [markdown]
# So each name begins with that attribute. Now load, from wrapper to plain and back. Which names
# does each side miss?

# %% tags=["nbval-check-output"]
for target, source in ((Walker(), wrapper), (wrapper, plain)):
    try:
        target.load_state_dict(source.state_dict())
    except RuntimeError as error:
        print(error)

# %% [markdown]
# Somebody in a hurry adds `strict=False`, and the error is gone:

# %% tags=["nbval-check-output"]
fresh = Walker()
answer = fresh.load_state_dict(wrapper.state_dict(), strict=False)
same = torch.equal(fresh.step.weight, plain.step.weight)
print("not loaded:", answer.missing_keys, "| weights arrived:", same)

# %% [markdown]
# Nothing was loaded. The model runs on, with random weights. **Do this instead:** keep your
# plain model, and save and load through it. Wrapper and model share their weights.

# %% tags=["nbval-check-output"]
restored = Walker()
compiled_restored = torch.compile(restored, backend="eager")
restored.load_state_dict(plain.state_dict())
print("plain into plain:", torch.equal(restored(position), plain(position)))
same = torch.allclose(compiled_restored(position), plain(position))
print("its wrapper sees it:", same)

# A file that was saved from a wrapper: take the extra name out, wherever it stands.
saved = wrapper.state_dict()
repaired = {key.replace("_orig_mod.", ""): value for key, value in saved.items()}
print("repaired file:", Walker().load_state_dict(repaired))

# %% [markdown]
# ### Methods other than `forward`
#
# **Predict.** `walk` calls the model three times. How much is compiled by `wrapper.walk(x)`?


# %%
def compiled_by(call):
    torch.compiler.reset()  # forget what was compiled before
    before = compilation_count()
    call()
    return "yes" if compilation_count() > before else "no"


in_place = Walker()
in_place.compile(backend="eager")  # no wrapper: the model itself
method = torch.compile(Walker().walk, backend="eager")

# %% tags=["nbval-check-output"]
walker = torch.compile(Walker(), backend="eager")
print("wrapper.walk(x) compiles:", compiled_by(lambda: walker.walk(position)))
print("wrapper(x) compiles:     ", compiled_by(lambda: walker(position)))
print("model.compile(), walk(x):", compiled_by(lambda: in_place.walk(position)))
print("torch.compile(m.walk):   ", compiled_by(lambda: method(position)))
print("names after model.compile():", list(in_place.state_dict()))

# %% [markdown]
# **Explain.** The wrapper compiles `forward`. Every other attribute it hands on to your model,
# and there `self(x)` is the plain model: nothing compiled, no warning. `model.compile()`
# changes the model in place, so `self(x)` is compiled, and names of weights stay as they were.
# Often that is the better choice.

# %% [markdown]
# ### Hooks that come late
#
# A *hook* is a function that PyTorch calls after a layer, say to keep what the layer gave.
#
# **Predict.** Does the compiled model call a hook that was added before its first call? And
# one that was added after it?


# %%
def hook_calls(late):
    torch.compiler.reset()
    seen, model = [], Walker()
    compiled = torch.compile(model, backend="eager")
    if late:
        compiled(position)
    model.step.register_forward_hook(lambda *_: seen.append(1))
    compiled(position), compiled(position)
    calls = len(seen)
    torch.compiler.reset()
    compiled(position)
    return calls, len(seen) - calls


# %% tags=["nbval-check-output"]
for late in (False, True):
    calls, after_reset = hook_calls(late)
    when = "after" if late else "before"
    print(f"hook {when} the first call: ran in {calls} of 2 calls,", end=" ")
    print(f"and after a reset in {after_reset} of 1")

# %% [markdown]
# **Explain.** A hook that is there when Dynamo looks is captured with the layer. A later one
# on a layer *inside* is not called by the code that is there already: to keep the check before
# each call short, Dynamo does not look for new hooks on inner layers. (On the model itself it
# does.) No error, no warning, just an empty list. Add hooks first, or call
# `torch.compiler.reset()` afterwards, so that the next call compiles again. All this is the
# same in torch 2.7, 2.11 and 2.14.

# %% [markdown]
# ## Explore it
#
# The view as it starts (this takes some seconds). The scale is logarithmic, because first and
# later calls differ a thousandfold: bars that look a little longer are many times as long. Read
# the figures.

# %%
from helpers import first_calls_view

view = first_calls_view("small", 8, "float32", device=device)
view

# %% [markdown]
# Now with controls: choose, then press **Run**. On a CPU, *medium* and *large* can take half
# a minute, most of it the first call. If the code is already on your disk, from an earlier
# run or from this lesson, the first call is shorter than the recorded one, which found an
# empty disk. For a model as small as this, two runs may also disagree on whether compiling
# pays: choose *large*. The table at the end keeps the figures of all your runs. Things to
# try:
#
# - *small*, batch 1, then 64: when does compiling gain more? (See *eager / later*.)
# - the same choice twice: how much do the figures differ by themselves?
# - `bfloat16`: faster or slower than `float32` on this machine? And on the GPU?

# %% tags=["widget"]
from helpers import first_calls_panel

first_calls_panel(view, device=device)

# %%
print(f"this lesson has run for {time.perf_counter() - started:.0f} s")

# %% [markdown]
# ## Check yourself
#
# <details><summary>1. A colleague times ten calls, the first included, and finds compiled
# five times slower. What do you ask for?</summary>
#
# The first call apart, the median of the later ones after warm-up, and how often the model
# will be called. Then: did anything compile during the timing?
# </details>
#
# <details><summary>2. A function adds two vectors of ten numbers. Will compiling help?</summary>
#
# No. The check before each compiled call costs more than the addition.
# </details>
#
# <details><summary>3. You load a checkpoint with <code>strict=False</code> and the accuracy
# is that of guessing. Where do you look?</summary>
#
# At the names: if they start with `_orig_mod.`, nothing was loaded. Take that out, or save
# from the plain model.
# </details>
#
# <details><summary>4. You compiled a language model, and <code>generate</code> is no faster.
# Why could that be?</summary>
#
# `generate` is not `forward`: through the wrapper it runs the plain model. Use
# `model.compile()`, or compile the method.
# </details>

# %% [markdown]
# ## Recap
#
# - `torch.compile` wraps; the first call compiles; later calls are warm.
# - Compare results with `torch.allclose` and a tolerance that you state.
# - Many operations on much data gain; few on little data lose to the fixed cost of a call.
# - Four flaws: no waiting for the GPU, compile time in the average, another shape warmed up,
#   a compilation inside the loop.
# - Save from the plain model; the wrapper compiles `forward` only, and skips late hooks.

# %% [markdown]
# ## In practice
#
# - Use `measure`, `torch.utils.benchmark` or `triton.testing.do_bench`, not a bare clock. They
#   answer different questions: `do_bench` times the GPU and hides what Python costs.
# - For a model that you train or serve, prefer `model.compile()`: names of weights and the type
#   of the model stay.
# - A server should make its first calls before users do, with the shapes that will come: two
#   sizes, and 1 if it can come.
# - Other programs on the machine disturb a timing. If `measure` notes that, measure again.

# %% [markdown]
# ## Further reading
#
# - [torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html):
#   every argument, from the source
# - [torch.utils.benchmark](https://docs.pytorch.org/tutorials/recipes/recipes/benchmark.html):
#   PyTorch's own tool for timing, with its reasons
# - [Modules and hooks under Dynamo](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_nn_module.html):
#   which hooks are supported, and when
