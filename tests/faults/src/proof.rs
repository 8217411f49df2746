//! What guards of all kinds and of both clients have in common.

use std::{fmt::Debug, future::Future, time::Duration};

use leasehold::{
    Delivery, Error, Guard, Leadership, Lost, MultiGuard, MultiLost, Permit, ReadGuard, WriteGuard,
    blocking,
};

use crate::locks::item_of;

/// What every guard tells.
pub trait Proof {
    /// The locks, each with its token. Permits have none: 0.
    fn tokens(&self) -> Vec<(String, u64)>;
    fn is_held(&self) -> bool;
    fn remaining(&self) -> Duration;
    /// Most do not nest.
    fn hold_count(&self) -> u32 {
        1
    }
    /// What tells its lease from others.
    fn id(&self) -> String;
}

/// A guard of an async client.
pub trait Held: Proof + Send + Sync {
    type Told: Future<Output: Debug> + Send + Unpin + 'static;

    /// Resolves when it is lost.
    fn told(&self) -> Self::Told;
    fn give_back(self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A guard of a blocking client.
pub trait HeldByThread: Proof {
    /// Waits for the loss, and returns why it is lost.
    fn wait_lost(&self, timeout: Duration) -> Option<String>;
    fn give_back(self) -> Result<(), Error>;
}

macro_rules! proof {
    ($($of:ident)?; $guard:ty, |$this:ident| $tokens:expr, $id:expr, { $($more:tt)* }) => {
        impl$(<$of>)? Proof for $guard {
            fn tokens(&self) -> Vec<(String, u64)> {
                let $this = self;
                $tokens
            }

            fn is_held(&self) -> bool {
                <$guard>::is_held(self)
            }

            fn remaining(&self) -> Duration {
                <$guard>::remaining(self)
            }

            fn id(&self) -> String {
                let $this = self;
                $id
            }

            $($more)*
        }
    };
}

macro_rules! is_a_guard {
    ($($of:ident)?; $guard:ty) => {
        proof!(
            $($of)?; $guard,
            |this| vec![(this.name().to_owned(), this.token())],
            this.holder().as_str().to_owned(),
            {
                fn hold_count(&self) -> u32 {
                    <$guard>::hold_count(self)
                }
            }
        );
    };
}

macro_rules! has_permits {
    ($guard:ty) => {
        proof!(
            ; $guard,
            |this| vec![(this.name().to_owned(), 0)],
            this.holder().as_str().to_owned(),
            {}
        );
    };
}

macro_rules! has_several {
    ($($of:ident)?; $guard:ty) => {
        proof!(
            $($of)?; $guard,
            |this| this.tokens().map(|(name, token)| (name.to_owned(), token)).collect(),
            format!("{:?}", this.tokens().next()),
            {}
        );
    };
}

macro_rules! leads {
    ($guard:ty) => {
        proof!(
            ; $guard,
            |this| vec![(this.name().to_owned(), this.term())],
            this.holder().as_str().to_owned(),
            {}
        );
    };
}

is_a_guard!(; Guard);
is_a_guard!(; ReadGuard);
is_a_guard!(; WriteGuard);
is_a_guard!(O; blocking::Guard<O>);
is_a_guard!(O; blocking::ReadGuard<O>);
is_a_guard!(O; blocking::WriteGuard<O>);
has_permits!(Permit);
has_permits!(blocking::Permit);
has_several!(; MultiGuard);
has_several!(O; blocking::MultiGuard<O>);
leads!(Leadership);
leads!(blocking::Leadership);
// Each item is held by itself.
proof!(
    ; Delivery,
    |this| vec![(item_of(this.payload()), 0)],
    this.holder().as_str().to_owned(),
    {}
);

macro_rules! held {
    ($guard:ty, $told:ty) => {
        impl Held for $guard {
            type Told = $told;

            fn told(&self) -> $told {
                <$guard>::lost(self)
            }

            fn give_back(self) -> impl Future<Output = Result<(), Error>> + Send {
                <$guard>::release(self)
            }
        }
    };
}

held!(Guard, Lost);
held!(ReadGuard, Lost);
held!(WriteGuard, Lost);
held!(Permit, Lost);
held!(MultiGuard, MultiLost);
held!(Leadership, Lost);

impl Held for Delivery {
    type Told = Lost;

    fn told(&self) -> Lost {
        Self::lost(self)
    }

    fn give_back(self) -> impl Future<Output = Result<(), Error>> + Send {
        Self::ack(self)
    }
}

macro_rules! held_by_thread {
    ($($of:ident)?; $guard:ty) => {
        impl$(<$of>)? HeldByThread for $guard {
            fn wait_lost(&self, timeout: Duration) -> Option<String> {
                let lost = <$guard>::wait_lost(self, timeout).expect("this thread may wait");
                lost.map(|reason| format!("{reason:?}"))
            }

            fn give_back(self) -> Result<(), Error> {
                <$guard>::release(self)
            }
        }
    };
}

held_by_thread!(O; blocking::Guard<O>);
held_by_thread!(O; blocking::ReadGuard<O>);
held_by_thread!(O; blocking::WriteGuard<O>);
held_by_thread!(; blocking::Permit);
held_by_thread!(O; blocking::MultiGuard<O>);
held_by_thread!(; blocking::Leadership);
