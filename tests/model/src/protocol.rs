//! What most models are made of: a case, and what is to hold in it.

/// A protocol in one case.
pub struct Protocol<C> {
    pub(crate) case: C,
    pub(crate) properties: Vec<&'static str>,
}

impl<C> Protocol<C> {
    /// The protocol with these properties to check.
    pub fn new(case: C, properties: &[&'static str]) -> Self {
        Self { case, properties: properties.to_vec() }
    }
}
