"""Twin critics, which are two networks that learn the same action values.

Learners use the smaller of the two values. The minimum counteracts over-estimation by a policy that maximises one
critic (Fujimoto et al. 2018, section 4.2).
"""

from typing import NamedTuple, TypeAlias

import numpy as np

from replaybench.controllers.losses.temporal_difference import Experiences, loss_factor, loss_gradient
from replaybench.controllers.networks.adam import adam_step
from replaybench.controllers.networks.network import AnyTape, Approximator, TrainState, differentiate, evaluate
from replaybench.runtime.arrays import AnyFloats
from replaybench.runtime.kernel import kernel

Twins: TypeAlias = tuple[TrainState, TrainState]


class TwinWorkspace(NamedTuple):
    """The work arrays of twin critics (two networks for the same action values) for B samples.

    `tape` holds the intermediate results of a critic's passes. `q` and `q_other` are values of the critics, and `d_q`
    is the gradient of a loss, `[B, 1]` each. `d_action` and `d_other` `[B, A]` are gradients of the values with respect
    to actions.
    """

    tape: AnyTape
    q: AnyFloats
    q_other: AnyFloats
    d_q: AnyFloats
    d_action: AnyFloats
    d_other: AnyFloats


@kernel
def twin_workspace(critics: Twins, batch: int, actions: int) -> TwinWorkspace:
    """Allocate the work arrays of twin critics for batches of `batch` experiences."""
    dtype = critics[0].network.parameters.dtype
    q, q_other, d_q = np.zeros((3, batch, 1), dtype)
    d_action, d_other = np.zeros((2, batch, actions), dtype)
    return TwinWorkspace(critics[0].tape, q, q_other, d_q, d_action, d_other)


@kernel
def lesser_value(
    critics: tuple[Approximator, Approximator], m: int, workspace: TwinWorkspace, observation: AnyFloats,
    action: AnyFloats,
) -> None:  # fmt: skip
    """Compute the smaller value of the m-th twin critics in `workspace.q`, for B pairs of s `[B, S]` and a `[B, A]`."""
    q, q_other = workspace.q, workspace.q_other
    evaluate(critics[0], m, workspace.tape, observation, action, q)
    evaluate(critics[1], m, workspace.tape, observation, action, q_other)
    for b in range(q.shape[0]):
        q[b, 0] = np.minimum(q[b, 0], q_other[b, 0])


@kernel
def lesser_gradient(
    critics: Twins, m: int, workspace: TwinWorkspace, observation: AnyFloats, action: AnyFloats
) -> None:
    """Compute the smaller value of the m-th twin critics in `workspace.q`, and its ∂/∂a in `workspace.d_action`."""
    q, q_other, d_action, d_other = workspace.q, workspace.q_other, workspace.d_action, workspace.d_other
    workspace.d_q[:] = 1
    evaluate(critics[0].network, m, workspace.tape, observation, action, q)
    differentiate(critics[0].network, m, workspace.tape, workspace.d_q, False, d_action)
    evaluate(critics[1].network, m, workspace.tape, observation, action, q_other)
    differentiate(critics[1].network, m, workspace.tape, workspace.d_q, False, d_other)
    for b in range(q.shape[0]):
        if not q[b, 0] <= q_other[b, 0]:
            for a in range(d_action.shape[1]):
                d_action[b, a] = d_other[b, a]
        q[b, 0] = np.minimum(q[b, 0], q_other[b, 0])


@kernel
def fit_twins(
    critics: Twins, m: int, workspace: TwinWorkspace, x: Experiences, row: int, y: AnyFloats, coefficient: float,
    step: int, delta: AnyFloats,
) -> None:  # fmt: skip
    """Do one step of Adam on the m-th twin critics, with targets y `[B, 1]` for the samples in a row of x.

    The loss of critic i is coefficient · mean_b w_b (y_b − Q_i(s_b, a_b))², with sample weights w. The mean TD error
    ½ (|δ₁| + |δ₂|) before the step is written to `delta` `[B]` (Wang & Ross 2019, section 3.3). With another loss than
    the squared error, the larger |δ| is written (Fujimoto et al. 2020), from which the loss also takes its mean.
    """
    batch = y.shape[0]
    kind = y.dtype.type
    q, d_q, nothing = workspace.q, workspace.d_q, np.empty((batch, 0), workspace.q.dtype)
    factor = 1.0
    if x.loss.averaged:  # its mean depends on both critics
        evaluate(critics[0].network, m, workspace.tape, x.observation[row], x.action[row], q)
        evaluate(critics[1].network, m, workspace.tape, x.observation[row], x.action[row], workspace.q_other)
        for b in range(batch):
            delta[b] = np.maximum(np.abs(y[b, 0] - q[b, 0]), np.abs(y[b, 0] - workspace.q_other[b, 0]))
        factor = loss_factor(delta, x.loss)
    squared = x.loss.limit == np.inf
    delta[:] = 0
    for i in range(2):
        critic = critics[i]
        evaluate(critic.network, m, workspace.tape, x.observation[row], x.action[row], q)
        for b in range(batch):
            error = y[b, 0] - q[b, 0]
            delta[b] = delta[b] + kind(0.5) * np.abs(error) if squared else np.maximum(delta[b], np.abs(error))
            weight = x.weight[row, b]
            d_q[b, 0] = loss_gradient(error, b, batch, x.loss, factor, -2 * coefficient, weight, kind)
        differentiate(critic.network, m, workspace.tape, d_q, True, nothing)
        adam_step(critic.network, m, critic.adam, step, x.rate_factor[row])
