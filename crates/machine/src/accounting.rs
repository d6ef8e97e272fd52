//! The costs of a block of measurement, by core and by thread.

use serde::{Deserialize, Serialize};

use crate::quantity::Nanoseconds;
use crate::reading::Reading;
use crate::site::CoreId;

/// Network softirq work of one kind on one core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Softirq {
    /// Times the handler ran.
    pub count: u64,
    /// Time inside the handler.
    pub time: Nanoseconds,
}

/// Network work of one core during a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreCost {
    /// The core.
    pub core: CoreId,
    /// Receiving network softirqs (NET_RX).
    pub net_rx: Reading<Softirq>,
    /// Sending network softirqs (NET_TX).
    pub net_tx: Reading<Softirq>,
    /// Interrupts taken from devices and from other cores; the core's own timer is not counted.
    pub interrupts: Reading<u64>,
}

/// Resources that one participating thread used during a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadCost {
    /// The end of the measurement that it belongs to: `local` or `remote`.
    pub end: String,
    /// The thread's task: `app`, `engine`.
    pub role: String,
    /// The core that it ran on.
    pub core: Reading<CoreId>,
    /// CPU time; all of the block for a thread that busy-waits. It includes softirq work on top of the thread, except
    /// on kernels with IRQ_TIME_ACCOUNTING.
    pub cpu: Reading<Nanoseconds>,
    /// Times that it gave its core up, to wait.
    pub voluntary_switches: Reading<u64>,
    /// Times that it was taken off its core.
    pub involuntary_switches: Reading<u64>,
    /// Cycles that it ran, where the machine counts them.
    pub cycles: Reading<u64>,
    /// Instructions that it retired, where the machine counts them.
    pub instructions: Reading<u64>,
    /// Cache misses, where the machine counts them.
    pub cache_misses: Reading<u64>,
}

/// Everything counted beside one block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accounting {
    /// Costs of this host's cores, whoever kept them busy: both ends where both are here, two hosts of the lab
    /// included.
    pub cores: Vec<CoreCost>,
    /// Costs of the cores of the peer's host, where that is another; its threads are those whose end is `remote`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_cores: Option<Vec<CoreCost>>,
    /// Every participating thread, of both ends.
    pub threads: Vec<ThreadCost>,
    /// Cost of taking these figures, per block.
    pub overhead: Nanoseconds,
}
