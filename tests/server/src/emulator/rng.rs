//! Randomness from one seed (xorshift64* behind splitmix64). Everything random in a run comes from here.

/// A stream of random numbers. Forks are independent streams, fixed by the moment of the fork.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self { state: mixed(seed).max(1) }
    }

    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    #[allow(clippy::should_implement_trait)] // it is no iterator: it never ends
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Up to `end`, which is left out.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// Small mostly, and rarely as much as `most`: each halving is as likely as the one before.
    pub fn skewed(&mut self, most: u64) -> u64 {
        let most = most >> self.below(8);
        self.between(0, most)
    }

    /// One of `weights`, each as likely as its weight.
    pub fn weighted<T: Copy>(&mut self, weights: &[(T, u64)]) -> T {
        let mut at = self.below(weights.iter().map(|(_, weight)| weight).sum());
        for (value, weight) in weights {
            if at < *weight {
                return *value;
            }
            at -= weight;
        }
        weights[0].0
    }
}

fn mixed(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
