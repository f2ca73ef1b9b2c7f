//! Axes of plots: where a value lies between 0 and 1, and which values are named.

use super::text::{short_duration, short_number};

/// Decades of an axis of nines at most: 99.9999 %.
const MOST_NINES: f64 = 6.0;
const FEWEST_NINES: f64 = 2.0;
/// Values of an axis; beyond is drawn at its end.
const LEAST: f64 = 1e-12;
const MOST: f64 = 1e18;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Log,
}

#[derive(Debug, Clone)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Value and name.
    pub ticks: Vec<(f64, String)>,
}

/// What the values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds.
    Duration,
    Number,
}

impl Kind {
    fn name(self, value: f64) -> String {
        match self {
            Kind::Duration => short_duration(value),
            Kind::Number => short_number(value),
        }
    }
}

impl Axis {
    /// From zero, or from below it where values are.
    pub fn linear(values: &[f64], kind: Kind) -> Self {
        let values = values.iter().map(|value| value.clamp(-MOST, MOST));
        let (low, high) = range(values).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let step = nice((high - low) / 4.0);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        let high = if high > low { high } else { low + step };
        let count = ((high - low) / step).round() as usize;
        let tick = |number: usize| {
            let value = low + step * number as f64;
            (value, kind.name(value))
        };
        let ticks = (0..=count).map(tick).collect();
        Axis { scale: Scale::Linear, low, high, ticks }
    }

    /// Of those above zero; to the next 1, 2 or 5 on both sides.
    pub fn log(values: &[f64], kind: Kind) -> Self {
        let above = values.iter().copied().filter(|value| *value > 0.0);
        let above = above.map(|value| value.clamp(LEAST, MOST));
        let (low, high) = range(above).unwrap_or((1.0, 10.0));
        let low = *steps(low / 10.0, low).last().unwrap_or(&low);
        let high = steps(high, high * 10.0).first().copied().unwrap_or(high);
        let high = if high > low { high } else { low * 10.0 };
        let all = steps(low, high);
        let is_power = |value: &&f64| (value.log10() - value.log10().round()).abs() < 1e-6;
        let powers: Vec<f64> = all.iter().filter(is_power).copied().collect();
        let ticks = match powers.len() {
            0..=2 => all,
            3..=6 => powers,
            more => powers.into_iter().step_by(more.div_ceil(6)).collect(),
        };
        let ticks = ticks.into_iter().map(|value| (value, kind.name(value))).collect();
        Axis { scale: Scale::Log, low, high, ticks }
    }

    /// Percentiles of so many values: every nine takes the same room. Values are [`nines`].
    pub fn nines(count: u64) -> Self {
        let high = (count.max(1) as f64).log10().clamp(FEWEST_NINES, MOST_NINES);
        let named = ["50", "90", "99", "99.9", "99.99", "99.999", "99.9999"];
        let at = |number: usize| if number == 0 { 2f64.log10() } else { number as f64 };
        let ticks = named.into_iter().enumerate().map(|(number, name)| (at(number), name));
        let ticks = ticks.filter(|(at, _)| *at <= high + 1e-9);
        Axis {
            scale: Scale::Linear,
            low: 0.0,
            high,
            ticks: ticks.map(|(at, name)| (at, name.to_owned())).collect(),
        }
    }

    /// Between 0 and 1, also for what lies beyond.
    pub fn at(&self, value: f64) -> f64 {
        let (value, low, high) = match self.scale {
            Scale::Linear => (value, self.low, self.high),
            Scale::Log => (value.max(self.low).log10(), self.low.log10(), self.high.log10()),
        };
        let at = (value - low) / (high - low);
        if at.is_finite() { at.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Where so much of the whole lies on an axis of nines: 0.99 at 2.
pub fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).max(1e-12).log10()
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// The next 1, 2, 2.5 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    if step.is_nan() || step <= 0.0 {
        return 0.25;
    }
    let power = 10f64.powf(step.log10().floor());
    let of = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|of| of * power >= step * (1.0 - 1e-9));
    of.unwrap_or(10.0) * power
}

/// All of 1, 2 and 5 times a power of ten from `low` to `high`, both included.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let all = (first..=last)
        .flat_map(|power| [1.0, 2.0, 5.0].into_iter().map(move |of| of * 10f64.powi(power)));
    all.filter(|value| *value >= low * (1.0 - 1e-9) && *value <= high * (1.0 + 1e-9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_at_a_round_number() {
        let axis = Axis::linear(&[130.0, 267.0], Kind::Number);
        assert_eq!(names(&axis), ["0", "100", "200", "300"]);
        assert!((axis.at(150.0) - 0.5).abs() < 1e-9);
        assert_eq!(axis.at(1e9), 1.0);
    }

    #[test]
    fn a_log_axis_ends_at_1_2_or_5() {
        let axis = Axis::log(&[0.3e6, 90e6], Kind::Duration);
        assert_eq!(names(&axis), ["1 ms", "10 ms", "100 ms"]);
        assert!(axis.at(0.2e6).abs() < 1e-9);
        let axis = Axis::log(&[1.2e6, 4e6], Kind::Duration);
        assert_eq!(names(&axis), ["1 ms", "2 ms", "5 ms"]);
    }

    #[test]
    fn every_nine_takes_the_same_room() {
        let axis = Axis::nines(10_000);
        assert_eq!(names(&axis), ["50", "90", "99", "99.9", "99.99"]);
        assert!((axis.at(nines(0.99)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn no_values_make_an_axis_all_the_same() {
        for values in [&[][..], &[0.0], &[f64::NAN], &[-5.0], &[1.0, 1.0], &[f64::MAX]] {
            for axis in [
                Axis::linear(values, Kind::Number),
                Axis::log(values, Kind::Duration),
                Axis::nines(0),
            ] {
                assert!(axis.ticks.len() < 12, "{axis:?}");
                for value in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY] {
                    assert!((0.0..=1.0).contains(&axis.at(value)), "{axis:?} {value}");
                }
            }
        }
    }
}
