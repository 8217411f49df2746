//! Figures: their units, how they are shown, and what sums up many of them.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Shown as ns, µs or ms.
    Seconds,
    /// Shown with k or M where it is large.
    PerSecond,
    /// Shown as they are.
    Bytes,
    /// A number of anything else, or a ratio.
    Number,
}

impl Unit {
    /// A figure in this unit, in three digits or more.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value.abs() < 1e-6 => digits(value * 1e9) + " ns",
            Self::Seconds if value.abs() < 1e-3 => digits(value * 1e6) + " µs",
            Self::Seconds => digits(value * 1e3) + " ms",
            Self::PerSecond if value >= 1e6 => digits(value / 1e6) + " M/s",
            Self::PerSecond if value >= 1e3 => digits(value / 1e3) + " k/s",
            Self::PerSecond => digits(value) + " /s",
            Self::Bytes => digits(value) + " B",
            Self::Number if value > 0.0 && value < LEAST => format!("under {LEAST}"),
            Self::Number => digits(value),
        }
    }
}

/// Three digits, or all those before the point.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

/// The value in the middle; `None` where there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 0.5)
}

/// The value below which a share of all values lies; `None` where there are none.
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * share).round() as usize])
}

/// How the smallest compares to the largest: 1 is all the same.
pub fn fewest_to_most(counts: impl Iterator<Item = f64> + Clone) -> f64 {
    let fewest = counts.clone().fold(f64::INFINITY, f64::min);
    let most = counts.fold(1.0, f64::max);
    fewest / most
}

/// The smallest number that is shown.
pub const LEAST: f64 = 0.001;
