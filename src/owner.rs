//! Owners: the identity that makes an acquisition nested.
//!
//! In Java the owner is the thread. A task of async Rust may run several branches at once, so an owner
//! taken from the task would let two of them in. Here each acquisition is its own owner, unless the
//! program names one: by handle ([`Mutex::owned_by`](crate::Mutex::owned_by)), for a stretch of code
//! ([`Owner::scope`]), or inside the body of [`Mutex::run`](crate::Mutex::run) for that same lock.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::text::Printable;

/// An identity that holds locks. Acquisitions by the same owner nest.
///
/// Clones are the same owner; every call of [`Owner::new`] and [`Owner::named`] makes another one. The name is
/// a label for logs and messages, not the identity: two owners named `"req-17"` exclude each other.
///
/// ```
/// use leasehold::Owner;
///
/// let one = Owner::named("req-17");
/// assert_eq!(one, one.clone());
/// assert_ne!(one, Owner::named("req-17"));
/// ```
#[derive(Clone)]
pub struct Owner {
    mark: Mark,
    /// A thin pointer, because every waiter and every [`Error`](crate::Error) has room for an owner.
    label: Option<Arc<Arc<str>>>,
}

impl Owner {
    /// Returns a new owner without a name.
    #[allow(clippy::new_without_default)] // every call makes another identity
    pub fn new() -> Self {
        Self::fresh(None, true)
    }

    /// Returns a new owner that appears as `label` in logs and messages.
    pub fn named(label: impl Into<Arc<str>>) -> Self {
        Self::fresh(Some(label.into()), true)
    }

    /// Returns the owner whose [`scope`](Self::scope) this code runs in, if any. The body of [`Mutex::run`](crate::Mutex::run) is
    /// no scope: there, [`Guard::owner`](crate::Guard::owner) is the owner.
    ///
    /// A spawned task does not run in its parent's scope. To pass the owner on to it:
    ///
    /// ```
    /// use leasehold::Owner;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// Owner::named("req-17").scope(async {
    ///     let owner = Owner::current().expect("in a scope");
    ///     tokio::spawn(async move { owner.scope(async { /* still req-17 */ }).await })
    ///         .await
    ///         .unwrap();
    /// })
    /// .await;
    /// # }
    /// ```
    pub fn current() -> Option<Self> {
        resolved(|context| match context {
            Context::Scope { owner, .. } => Some(owner),
            Context::Body { .. } => None,
        })
    }

    /// Runs `future` so that every lock acquired inside it belongs to this owner, except on handles that are
    /// [`owned_by`](crate::Mutex::owned_by) another. Leaderships, permits and deliveries belong to no
    /// owner: they never nest. If scopes and bodies of [`Mutex::run`](crate::Mutex::run) are nested, the innermost decides.
    ///
    /// Branches that run concurrently inside one scope (`join!`, `select!`, `buffer_unordered`) have the
    /// same owner, so a lock does not exclude them from each other. If it must, give each branch its own owner.
    /// A task spawned inside the scope does not belong to it; see [`Owner::current`].
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let context = Context::Scope { owner: self.clone(), outer: innermost() };
        CONTEXT.scope(Arc::new(context), future)
    }

    /// Returns the owner of the blocking calls of this thread.
    pub(crate) fn this_thread() -> Self {
        thread_local! {
            static THREAD: Owner = {
                let label = std::thread::current().name().map(Arc::from);
                let owner = Owner::fresh(label, true);
                Owner { mark: owner.mark.of_thread(), ..owner }
            };
        }
        // A thread that is ending holds nothing that it could re-enter.
        THREAD.try_with(Self::clone).unwrap_or_else(|_| Self::single())
    }

    /// Returns an owner that no other acquisition can have.
    pub(crate) fn single() -> Self {
        Self::fresh(None, false)
    }

    /// Returns the owner of an acquisition of the lock `lock`: the handle's, that of the innermost scope or body of
    /// `run` for the same lock, or a new one.
    ///
    /// An owner that was named can be named again, even one that was made for a single acquisition.
    pub(crate) fn resolve(explicit: Option<&Self>, lock: LockKey<'_>) -> Self {
        let named = explicit.cloned().or_else(|| resolved(|context| context.owner_of(lock)));
        match named {
            Some(owner) => Self { mark: owner.mark.shared(), ..owner },
            None => Self::single(),
        }
    }

    /// Returns an owner of another process, which is shown as it is there. It is none of those of this process.
    pub(crate) fn elsewhere(shown: &str) -> Self {
        let owner = Self::fresh(Some(shown.into()), true);
        Self { mark: owner.mark.of_elsewhere(), ..owner }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.mark.is_shared()
    }

    /// Returns true if it is a thread, whose guards cannot leave it.
    pub(crate) fn is_thread(&self) -> bool {
        self.mark.is_thread()
    }

    /// Returns the same owner as one whose guards may be anywhere.
    pub(crate) fn of_anyone(&self) -> Self {
        Self { mark: self.mark.of_anyone(), ..self.clone() }
    }

    fn fresh(label: Option<Arc<str>>, shared: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mark = Mark::new(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { mark: if shared { mark.shared() } else { mark }, label: label.map(Arc::new) }
    }
}

/// An owner's number, a bit that is set if another acquisition can have the same owner, one for threads, and one for owners of
/// other processes.
#[derive(Clone, Copy)]
struct Mark(NonZeroU64);

impl Mark {
    fn new(id: u64) -> Self {
        Self(NonZeroU64::new(id << 3).expect("BUG: owners are counted from 1"))
    }

    fn id(self) -> u64 {
        self.0.get() >> 3
    }

    fn is_shared(self) -> bool {
        self.0.get() & 1 == 1
    }

    fn shared(self) -> Self {
        Self(self.0 | 1)
    }

    fn is_thread(self) -> bool {
        self.0.get() & 2 == 2
    }

    fn of_thread(self) -> Self {
        Self(self.0 | 2)
    }

    fn is_elsewhere(self) -> bool {
        self.0.get() & 4 == 4
    }

    fn of_elsewhere(self) -> Self {
        Self(self.0 | 4)
    }

    fn of_anyone(self) -> Self {
        Self(NonZeroU64::new(self.0.get() & !2).expect("BUG: owners are counted from 1"))
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.mark.id() == other.mark.id()
    }
}

impl Eq for Owner {}

impl std::hash::Hash for Owner {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.mark.id().hash(state);
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) if self.mark.is_elsewhere() => write!(f, "{}", Printable(label)),
            Some(label) => write!(f, "{}#{}", Printable(label), self.mark.id()),
            None => write!(f, "#{}", self.mark.id()),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

/// A lock of one client: two clients of a process may use the same name on different servers.
#[derive(Clone, Copy)]
pub(crate) struct LockKey<'a> {
    pub(crate) client: usize,
    pub(crate) name: &'a Arc<str>,
}

tokio::task_local! {
    static CONTEXT: Arc<Context>;
}

/// The scopes and bodies that code runs inside of, the innermost first.
enum Context {
    /// A scope: all locks belong to its owner.
    Scope { owner: Owner, outer: Option<Arc<Context>> },
    /// A body of `run`: that lock belongs to its owner.
    Body { client: usize, name: Arc<str>, owner: Owner, outer: Option<Arc<Context>> },
}

impl Context {
    fn owner_of(&self, lock: LockKey<'_>) -> Option<&Owner> {
        match self {
            Self::Scope { owner, .. } => Some(owner),
            Self::Body { client, name, owner, .. } => {
                (*client == lock.client && name == lock.name).then_some(owner)
            }
        }
    }

    fn outer(&self) -> Option<&Self> {
        match self {
            Self::Scope { outer, .. } | Self::Body { outer, .. } => outer.as_deref(),
        }
    }
}

fn innermost() -> Option<Arc<Context>> {
    CONTEXT.try_with(Arc::clone).ok()
}

/// Returns the owner that `decide` finds in the innermost context in which it finds one.
fn resolved(decide: impl Fn(&Context) -> Option<&Owner>) -> Option<Owner> {
    let innermost = innermost();
    let mut contexts = std::iter::successors(innermost.as_deref(), |context| context.outer());
    contexts.find_map(|context| decide(context).cloned())
}

/// Runs a body under one or several locks, each of which its owner re-enters there.
pub(crate) fn run_body_under<'a, F: Future, L: Iterator<Item = (&'a Owner, LockKey<'a>)>>(
    locks: L,
    body: F,
) -> impl Future<Output = F::Output> + use<F, L> {
    let inside = locks.fold(innermost(), |outer, (owner, lock)| {
        let (name, owner) = (lock.name.clone(), owner.clone());
        Some(Arc::new(Context::Body { client: lock.client, name, owner, outer }))
    });
    CONTEXT.scope(inside.expect("BUG: a body runs under a lock"), body)
}

/// The task or thread that runs this code. It serves to notice those that wait for themselves, or for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Task(tokio::task::Id),
    Thread(std::thread::ThreadId),
}

impl Place {
    pub(crate) fn here() -> Self {
        match tokio::task::try_id() {
            Some(id) => Self::Task(id),
            None => Self::Thread(std::thread::current().id()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &Arc<str>) -> LockKey<'_> {
        LockKey { client: 1, name }
    }

    impl Owner {
        fn run_body<'a, F: Future>(
            &'a self,
            lock: LockKey<'a>,
            body: F,
        ) -> impl Future<Output = F::Output> {
            run_body_under(std::iter::once((self, lock)), body)
        }
    }

    #[tokio::test]
    async fn the_handle_goes_before_what_it_is_used_in_and_there_the_innermost_decides() {
        let name: Arc<str> = "n".into();
        let (explicit, scoped, body) = (Owner::new(), Owner::named("s"), Owner::new());
        scoped
            .scope(async {
                let inside = body.run_body(key(&name), async {
                    assert_eq!(Owner::resolve(None, key(&name)), body);
                    assert_eq!(Owner::resolve(None, key(&"m".into())), scoped);
                    assert_eq!(Owner::current(), Some(scoped.clone()));
                });
                inside.await;
            })
            .await;
        body.run_body(key(&name), async {
            assert_eq!(Owner::resolve(None, key(&name)), body);
            scoped
                .scope(async {
                    assert_eq!(Owner::resolve(None, key(&name)), scoped);
                    assert_eq!(Owner::resolve(Some(&explicit), key(&name)), explicit);
                    assert_eq!(Owner::current(), Some(scoped.clone()));
                })
                .await;
        })
        .await;
        assert_ne!(Owner::resolve(None, key(&name)), Owner::resolve(None, key(&name)));
    }

    #[tokio::test]
    async fn a_body_is_known_for_its_own_lock_only() {
        let (name, other): (Arc<str>, Arc<str>) = ("n".into(), "m".into());
        let (outer, inner) = (Owner::new(), Owner::new());
        outer
            .run_body(key(&name), async {
                inner
                    .run_body(key(&other), async {
                        assert_eq!(Owner::resolve(None, key(&name)), outer);
                        assert_eq!(Owner::resolve(None, key(&other)), inner);
                        let elsewhere = LockKey { client: 2, name: &name };
                        assert_ne!(Owner::resolve(None, elsewhere), outer);
                    })
                    .await;
            })
            .await;
    }

    #[test]
    fn only_the_owner_of_a_single_acquisition_cannot_be_named_again() {
        let name: Arc<str> = "n".into();
        assert!(Owner::new().is_shared() && Owner::named("a").is_shared());
        let single = Owner::resolve(None, key(&name));
        assert!(!single.is_shared());
        let thread = Owner::this_thread();
        assert!(thread.is_shared() && thread.is_thread() && !Owner::new().is_thread());
        assert!(Owner::resolve(Some(&thread), key(&name)).is_thread());
        assert!(!thread.of_anyone().is_thread() && thread.of_anyone() == thread);
        assert!(Owner::resolve(Some(&single), key(&name)).is_shared(), "it was named");
    }

    #[test]
    fn the_same_owner_has_the_same_hash_and_another_one_another() {
        let hashes = std::hash::RandomState::new();
        let hash = |owner: &Owner| std::hash::BuildHasher::hash_one(&hashes, owner);
        let owner = Owner::named("a");
        assert_eq!(hash(&owner), hash(&owner.clone()));
        assert_ne!(hash(&owner), hash(&Owner::named("a")));
    }
}
