//! What a figure should be.

use super::figures::Unit;

/// What a figure should be.
#[derive(Clone, Copy)]
pub enum Aim {
    /// The figure is less than this.
    Under(f64),
    /// The figure is this or less.
    AtMost(f64),
    /// The figure is more than this.
    Over(f64),
    /// So many times what it is compared with, or less.
    RatioUnder(f64),
    /// More than so many times what it is compared with.
    RatioOver(f64),
}

impl Aim {
    /// Whether a figure meets it; `ratio` is the figure beside what it is compared with.
    pub fn is_met(self, ours: Option<f64>, ratio: Option<f64>) -> bool {
        match self {
            Self::Under(most) => ours.is_some_and(|ours| ours < most),
            Self::AtMost(most) => ours.is_some_and(|ours| ours <= most),
            Self::Over(least) => ours.is_some_and(|ours| ours > least),
            Self::RatioUnder(most) => ratio.is_some_and(|ratio| ratio < most),
            Self::RatioOver(least) => ratio.is_some_and(|ratio| ratio > least),
        }
    }

    /// In words, with the figure in its unit.
    pub fn show(self, unit: Unit) -> String {
        match self {
            Self::Under(most) => format!("under {}", unit.show(most)),
            Self::AtMost(most) => format!("at most {}", unit.show(most)),
            Self::Over(least) => format!("over {}", unit.show(least)),
            Self::RatioUnder(most) => format!("ratio under {most}"),
            Self::RatioOver(least) => format!("ratio over {least}"),
        }
    }
}
