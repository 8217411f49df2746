//! What the blocking handles of all kinds share: who calls, and the runtime that serves the calls.

use std::future::Future;
use std::marker::PhantomData;

use super::Guard;
use super::runtime::Runtime;
use crate::error::Error;
use crate::owner::Owner;

/// Marks guards that the locking thread owns. They stay on that thread.
#[derive(Debug)]
pub struct ThisThread(PhantomData<*const ()>);

/// Marks guards that a named owner owns. They may move to any thread.
#[derive(Debug)]
pub struct NamedOwner(());

/// The thread that calls, or the owner that was named instead of it.
pub(super) struct Caller<O> {
    runtime: Runtime,
    /// `None` means that the thread is the owner.
    named: Option<Owner>,
    ownership: PhantomData<fn() -> O>,
}

impl Caller<ThisThread> {
    pub(super) fn this_thread(runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), named: None, ownership: PhantomData }
    }
}

impl<O> Caller<O> {
    pub(super) fn named(&self, owner: &Owner) -> Caller<NamedOwner> {
        Caller {
            runtime: self.runtime.clone(),
            named: Some(owner.of_anyone()),
            ownership: PhantomData,
        }
    }

    /// Returns the owner of what this thread acquires.
    pub(super) fn owner(&self) -> Owner {
        self.named.clone().unwrap_or_else(Owner::this_thread)
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Waits for the answer to a call.
    pub(super) fn wait<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.wait(call)?
    }

    /// Waits for an acquisition.
    pub(super) fn take(
        &self,
        acquire: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Guard<O>, Error> {
        Ok(Guard::new(self.wait(acquire)?, &self.runtime))
    }

    /// Waits for an acquisition that may end without a lock.
    pub(super) fn try_take(
        &self,
        acquire: impl Future<Output = Result<Option<crate::Guard>, Error>>,
    ) -> Result<Option<Guard<O>>, Error> {
        Ok(self.wait(acquire)?.map(|guard| Guard::new(guard, &self.runtime)))
    }
}

impl<O> Clone for Caller<O> {
    fn clone(&self) -> Self {
        Self { runtime: self.runtime.clone(), named: self.named.clone(), ownership: PhantomData }
    }
}
