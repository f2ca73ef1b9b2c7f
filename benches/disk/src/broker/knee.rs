//! Where latency takes off: the knee of a curve of latency over load. Pure.

/// How far p99 may rise above the curve's lowest and still count as before the knee.
pub const RISE: f64 = 3.0;
/// What is said of it wherever one is marked.
pub const RULE: &str = "the knee is the highest load up to which p99 stays within three times the lowest p99 \
                        of the curve, at this load and all below it";

/// One load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// `None`: the broker fell so far behind that it was ended.
    pub p99: Option<f64>,
}

/// The index of the knee, for steps by rising load. `None` where not even the first holds.
pub fn knee(steps: &[Step]) -> Option<usize> {
    let lowest = steps.iter().filter_map(|step| step.p99).fold(f64::INFINITY, f64::min);
    let holds = |step: &Step| step.p99.is_some_and(|p99| p99 <= lowest * RISE);
    steps.iter().take_while(|step| holds(step)).count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(p99: &[f64]) -> Option<usize> {
        let step = |&p99: &f64| Step { p99: (p99 >= 0.0).then_some(p99) };
        knee(&p99.iter().map(step).collect::<Vec<_>>())
    }

    #[test]
    fn the_knee_is_the_last_load_before_latency_takes_off() {
        assert_eq!(of(&[1.0, 1.1, 1.4, 2.9, 8.0, 90.0]), Some(3));
        // A first step that is slow for being cold is within the rise.
        assert_eq!(of(&[2.0, 1.0, 1.0, 7.0]), Some(2));
        // One that holds again behind one that does not is luck.
        assert_eq!(of(&[1.0, 5.0, 1.0]), Some(0));
        assert_eq!(of(&[1.0, -1.0]), Some(0));
        assert_eq!(of(&[1.0, 1.0]), Some(1));
        assert_eq!(of(&[-1.0]), None);
        assert_eq!(of(&[9.0, 1.0]), None);
        assert_eq!(of(&[]), None);
    }
}
