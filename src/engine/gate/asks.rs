//! What a driver asks of the servers, and what it hears while it waits.

use std::pin::Pin;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::claim::Claim;
use super::wait_list::Seeker;
use crate::clock::Timestamp;
use crate::engine::kind::Wanted;
use crate::engine::quorum::{Attempt, Outcome};
use crate::error::Fault;
use crate::node::Letter;

/// What those who wait may learn.
pub(super) enum Heard {
    Letter(Letter),
    /// A release on this node, or the subscription, before which a release may have been missed.
    Release {
        node: usize,
    },
    /// The queue is on another server.
    Moved,
}

/// A request, and what it was begun for.
pub(super) struct Request {
    pub(super) attempt: Attempt,
    pub(super) wanted: Wanted,
}

/// A request that was answered. If it is dropped, its release goes before the end of the claim.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) claim: Claim,
    pub(super) seeker: Seeker,
    pub(super) number: u64,
    pub(super) answer: Result<Outcome, Fault>,
}

/// The requests that ask now.
#[derive(Default)]
pub(super) struct Asks(FuturesUnordered<Pin<Box<dyn Future<Output = Asked> + Send>>>);

impl Asks {
    pub(super) fn push(&mut self, claim: Claim, seeker: Seeker, number: u64, request: Request) {
        let answer = Err(Fault::Closed);
        let mut asked = Asked { request, claim, seeker, number, answer };
        self.0.push(Box::pin(async move {
            asked.answer = asked.claim.ask(&mut asked.request.attempt, Timestamp::NEVER).await;
            asked
        }));
    }

    pub(super) async fn next(&mut self) -> Asked {
        match self.0.next().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }
}
