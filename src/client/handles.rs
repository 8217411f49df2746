//! The handles that a client hands out: to locks of all kinds, queues, elections, latches and signals.

use super::Client;
use crate::primitives::election::Election;
use crate::primitives::latch::Latch;
use crate::primitives::multi_lock::MultiLock;
use crate::primitives::mutex::Mutex;
use crate::primitives::queue::Queue;
use crate::primitives::rw_lock::RwLock;
use crate::primitives::semaphore::Semaphore;
use crate::primitives::signal::Signal;
use crate::primitives::signal_group::SignalGroup;

impl Client {
    /// Returns a handle to the lock called `name`, without I/O.
    ///
    /// The [`name_prefix`](crate::ClientBuilder::name_prefix) and the name are the lock's key on the servers: together at most
    /// 4096 bytes of UTF-8, which begin neither with `leasehold_` nor with `redisson_lock_token:`. The name must not be empty.
    /// The first call that acquires reports a bad name.
    #[doc(alias = "getLock")]
    #[doc(alias = "getFencedLock")]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the lock called `name` that serves all its waiters in the order of their arrival at the server,
    /// without I/O.
    ///
    /// It is the same lock as [`mutex`](Self::mutex) returns for that name, so both exclude each other, but each task that
    /// waits through this handle has a place of its own in the server's queue: the order is strict among all such tasks of
    /// all processes. Nothing is handed from task to task inside the process, so each turn costs a message through the
    /// server. A client's tasks that wait through a `mutex` handle have one place together.
    ///
    /// Only leasehold's handles keep the order. Programs that use Redisson's `RFairLock` or `RLock` of that name are
    /// excluded, too, but wait in a queue of their own, or in none.
    ///
    /// With [several independent masters](crate::ClientBuilder::nodes), acquiring fails with
    /// [`Error::SingleServerOnly`](crate::Error::SingleServerOnly): independent servers share no order of arrival.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let printer = client.fair_mutex("printer");
    /// let guard = printer.lock().await?; // after all that came before
    /// guard.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getFairLock")]
    #[doc(alias = "RFairLock")]
    pub fn fair_mutex(&self, name: impl AsRef<str>) -> Mutex {
        self.mutex(name).fair()
    }

    /// Returns a handle to the locks called `names`, which are taken together: all of them, or none. It costs no I/O.
    ///
    /// Each of them is the lock that [`mutex`](Self::mutex) returns for its name. The first call that acquires reports a bad
    /// name, or that there are none.
    #[doc(alias = "getMultiLock")]
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::of(names.into_iter().map(|name| self.mutex(name)))
    }

    /// Returns a handle to the queue called `name`, without I/O: items that are lent to workers, and lost by none of them.
    ///
    /// Names are those of [`mutex`](Self::mutex). A name is a lock or a queue, never both.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let mails = client.queue("mails");
    /// mails.push("to: kim").await?;
    /// let mail = mails.pop().await?;
    /// println!("{}", String::from_utf8_lossy(mail.payload()));
    /// mail.ack().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getQueue")]
    #[doc(alias = "getBlockingQueue")]
    #[doc(alias = "getDeque")]
    pub fn queue(&self, name: impl AsRef<str>) -> Queue {
        Queue::new(&self.engine, &self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the semaphore called `name`, without I/O: a number of permits that all processes share.
    ///
    /// Names are those of [`mutex`](Self::mutex). A name is a lock or a semaphore, never both. Do not use both
    /// `name` and `{name}`: in Redisson's format the permits of both end in one set.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let conversions = client.semaphore("conversions").with_permits(4);
    /// let permit = conversions.acquire().await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getSemaphore")]
    #[doc(alias = "getPermitExpirableSemaphore")]
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the election called `name`, without I/O: of all candidates in all processes, one leads at a time.
    ///
    /// It is the lock that [`mutex`](Self::mutex) returns for that name. The first call that asks the servers reports a bad
    /// name.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the latch called `name`, without I/O: it is shut until a number of counts were made.
    ///
    /// The name is the latch's key on the server, as that of a [`mutex`](Self::mutex). A key is one kind of thing; a latch and a
    /// semaphore of one name cannot be told apart, and disturb each other.
    #[doc(alias = "getCountDownLatch")]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the signal called `name`, without I/O: with it, one process tells all others that something has changed.
    ///
    /// Names are those of [`mutex`](Self::mutex), but a signal may have the same name as a lock.
    #[doc(alias = "getTopic")]
    pub fn signal(&self, name: impl AsRef<str>) -> Signal {
        Signal::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the group of signals called `name`, without I/O: a waiter learns which names were signalled.
    ///
    /// Names are those of [`mutex`](Self::mutex), but a group of signals may have the same name as a lock.
    #[doc(alias = "getPatternTopic")]
    pub fn signal_group(&self, name: impl AsRef<str>) -> SignalGroup {
        SignalGroup::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }

    /// Returns a handle to the read-write lock called `name`, without I/O: many readers hold it at once, or one writer alone.
    ///
    /// The name is the lock's key on the servers, as that of a [`mutex`](Self::mutex). A key holds one kind of lock: acquiring
    /// the other fails with [`Error::WrongType`](crate::Error::WrongType) while it is held.
    ///
    /// ```no_run
    /// # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
    /// let config = client.rw_lock("config");
    /// {
    ///     let _reading = config.read().await?; // beside other readers
    /// }
    /// let writing = config.write().await?; // alone
    /// let reading = writing.downgrade().await?; // nobody wrote in between
    /// reading.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "rwlock")]
    #[doc(alias = "getReadWriteLock")]
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(&self.engine, self.engine.config.prefixed(name.as_ref()))
    }
}
