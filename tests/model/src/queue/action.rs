//! What may happen next.

/// What may happen next. The numbers are those of the waiter, the process or the client of Redisson.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A wait begins.
    Begin(u8),
    /// An attempt without waiting begins.
    Try(u8),
    /// A wait is given up.
    GiveUp(u8),
    /// The waiter releases what it holds.
    Unlock(u8),
    /// It sends a renewal.
    Renew(u8),
    /// It polls.
    Poll(u8),
    /// Its timer ends.
    Timer(u8),
    /// The server runs the process's next command.
    Run(u8),
    /// It runs it, and will run it again.
    RunTwice(u8),
    /// It runs the next command of a connection that was given up.
    RunStray(u8),
    /// That command never runs.
    DropStray(u8),
    /// The process hears the next answer.
    Hear(u8),
    /// The server runs the next subscription.
    Subscribe(u8),
    /// The process hears the next message.
    Receive(u8),
    /// Its pause behind a failure, or for others behind its release, is over.
    Resume(u8),
    /// It learns that nobody of it waits any more.
    Clear(u8),
    /// It learns that the queue is on another server.
    Follow(u8),
    /// The command connection breaks and is made again.
    Break(u8),
    /// The subscriptions' connection breaks; whether the server notices at once.
    Reset(u8, bool),
    /// The server notices that.
    ServerNotices(u8),
    /// The process notices that, and subscribes again.
    ProcessNotices(u8),
    /// The process notices that its server restarted.
    Reconnect(u8),
    /// The process ends.
    Crash(u8),
    /// The process stops.
    Stop(u8),
    /// A client of Redisson begins.
    JavaBegin(u8),
    /// Its request or subscription runs.
    JavaRun(u8),
    /// It wakes.
    JavaWake(u8),
    /// It sends its release.
    JavaUnlock(u8),
    /// Its unsubscription runs.
    JavaUnsubscribe(u8),
    /// It ends.
    JavaCrash(u8),
    /// The lease ends (without ticks).
    Expire,
    /// The queue is lost.
    Forget,
    /// The server restarts, empty.
    Restart,
    /// Lock and queue move to another server.
    Move,
    /// The server's wall clock steps.
    Step,
    /// An operator unlocks by force.
    Force,
    /// A tick for all clocks.
    Tick,
    /// A tick for all but the process's.
    TickWithout(u8),
    /// A tick for the process's clock only.
    TickOf(u8),
    /// A tick for the server's clock only.
    TickOfServer,
}
