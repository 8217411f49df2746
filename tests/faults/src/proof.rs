//! What guards of all kinds and of both clients have in common.

use std::{fmt::Debug, future::Future, time::Duration};

use leasehold::{
    Error, Guard, Leadership, Lost, MultiGuard, MultiLost, Permit, ReadGuard, WriteGuard, blocking,
};

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

/// `$proof` is the type whose methods a guard has.
macro_rules! proof {
    ($($of:ident)?; $guard:ty as $proof:ty, |$this:ident| $tokens:expr, $id:expr, { $($more:tt)* }) => {
        impl$(<$of>)? Proof for $guard {
            fn tokens(&self) -> Vec<(String, u64)> {
                let $this: &$proof = self;
                $tokens
            }

            fn is_held(&self) -> bool {
                <$proof>::is_held(self)
            }

            fn remaining(&self) -> Duration {
                <$proof>::remaining(self)
            }

            fn id(&self) -> String {
                let $this: &$proof = self;
                $id
            }

            $($more)*
        }
    };
}

macro_rules! is_a_guard {
    ($($of:ident)?; $guard:ty as $proof:ty) => {
        proof!(
            $($of)?; $guard as $proof,
            |this| vec![(this.name().to_owned(), this.token())],
            this.holder().as_str().to_owned(),
            {
                fn hold_count(&self) -> u32 {
                    <$proof>::hold_count(self)
                }
            }
        );
    };
}

macro_rules! has_permits {
    ($guard:ty) => {
        proof!(
            ; $guard as $guard,
            |this| vec![(this.name().to_owned(), 0)],
            this.holder().as_str().to_owned(),
            {}
        );
    };
}

macro_rules! has_several {
    ($($of:ident)?; $guard:ty) => {
        proof!(
            $($of)?; $guard as $guard,
            |this| this.tokens().map(|(name, token)| (name.to_owned(), token)).collect(),
            format!("{:?}", this.tokens().next()),
            {}
        );
    };
}

macro_rules! leads {
    ($guard:ty) => {
        proof!(
            ; $guard as $guard,
            |this| vec![(this.name().to_owned(), this.term())],
            this.holder().as_str().to_owned(),
            {}
        );
    };
}

is_a_guard!(; Guard as Guard);
is_a_guard!(; ReadGuard as Guard);
is_a_guard!(; WriteGuard as Guard);
is_a_guard!(O; blocking::Guard<O> as blocking::Guard<O>);
is_a_guard!(O; blocking::WriteGuard<O> as blocking::Guard<O>);
has_permits!(Permit);
has_permits!(blocking::Permit);
has_several!(; MultiGuard);
has_several!(O; blocking::MultiGuard<O>);
leads!(Leadership);
leads!(blocking::Leadership);

macro_rules! held {
    ($guard:ty as $proof:ty, $told:ty, $give_back:ident) => {
        impl Held for $guard {
            type Told = $told;

            fn told(&self) -> $told {
                <$proof>::lost(self)
            }

            fn give_back(self) -> impl Future<Output = Result<(), Error>> + Send {
                <$guard>::$give_back(self)
            }
        }
    };
}

held!(Guard as Guard, Lost, unlock);
held!(ReadGuard as Guard, Lost, unlock);
held!(WriteGuard as Guard, Lost, unlock);
held!(Permit as Permit, Lost, release);
held!(MultiGuard as MultiGuard, MultiLost, unlock);
held!(Leadership as Leadership, Lost, resign);

macro_rules! held_by_thread {
    ($($of:ident)?; $guard:ty as $proof:ty, $give_back:ident) => {
        impl$(<$of>)? HeldByThread for $guard {
            fn wait_lost(&self, timeout: Duration) -> Option<String> {
                let lost = <$proof>::wait_lost(self, timeout).expect("this thread may wait");
                lost.map(|reason| format!("{reason:?}"))
            }

            fn give_back(self) -> Result<(), Error> {
                <$guard>::$give_back(self)
            }
        }
    };
}

held_by_thread!(O; blocking::Guard<O> as blocking::Guard<O>, unlock);
held_by_thread!(O; blocking::WriteGuard<O> as blocking::Guard<O>, unlock);
held_by_thread!(; blocking::Permit as blocking::Permit, release);
held_by_thread!(O; blocking::MultiGuard<O> as blocking::MultiGuard<O>, unlock);
held_by_thread!(; blocking::Leadership as blocking::Leadership, resign);
