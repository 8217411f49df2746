//! What there is in a state, and what may happen in it.

use arrayvec::ArrayVec;

use crate::waiting::{self, Ends, Requests};

/// The model's state with `C` clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State<const C: usize> {
    /// The items that nobody has had.
    pub waiting: ArrayVec<Item, 4>,
    /// Those that are lent, or due again.
    pub lent: ArrayVec<Lent, 8>,
    /// Those that are done.
    pub done: ArrayVec<Item, 4>,
    /// Who waits.
    pub queue: ArrayVec<Delivery, 8>,
    /// The clients.
    pub clients: [Client; C],
    /// How often each thing that is bounded has happened.
    pub spent: Spent,
    /// What has happened, for the properties; no client sees it.
    pub seen: Seen,
}

/// An item, by its number.
pub type Item = u8;

/// The id of a delivery: a client and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery {
    /// Whose it is.
    pub client: u8,
    /// Which of that client's.
    pub number: u8,
}

/// An item that is lent, or due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lent {
    /// The ticks until its end; zero: it is due.
    pub left: u8,
    /// Which item.
    pub item: Item,
    /// To whom; `None`: it was given back.
    pub to: Option<Delivery>,
}

/// What clients ask of the server. The numbers are those of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// `item_pop`, with an entry.
    Ask(u8),
    /// The same once more: nobody who waits hears the answer.
    Echo(u8),
    /// `item_renew`.
    Renew(u8),
    /// The same, and which item it is.
    Look(u8),
    /// `item_settle`: it is given back.
    Back(u8),
    /// The same: it is done. The item, which the client had, stands for the time when it was lent.
    Done(u8, Item),
}

/// What the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    /// To an ask: this item is lent.
    Granted(Item),
    /// To an ask: it waits in the queue. Whether it is the first, and what it is told then.
    Queued(bool, Ends),
    /// To a renewal: it is lent still.
    Ours,
    /// To a look: it is lent still, and this is the item.
    Is(Item),
    /// To both: it is not.
    Gone,
}

/// What the server writes to one who waits. A grant brings the item, if it is short.
pub type Letter = waiting::Letter<Option<Item>>;

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// The number of its newest delivery.
    pub number: u8,
    /// What it has sent and was not run yet: runs in this order, at any later time.
    pub requests: ArrayVec<Request, 16>,
    /// The ticks since that was sent whose answer it waits for.
    pub asked: Option<u8>,
    /// That answer, on its way.
    pub reply: Option<Reply>,
    /// The letters about that delivery on their way, in order.
    pub letters: ArrayVec<Letter, 8>,
    /// The library's machine for it.
    pub machine: Requests<Letter>,
    /// An answer on its way to a request that was given up: which delivery was granted which item.
    pub stray: Option<(u8, Item)>,
    /// What the newest grant has brought, and to which delivery.
    pub content: Option<(u8, Item)>,
}

/// What a client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It asks by itself for the first time.
    First,
    /// The machine has a request for it.
    Waiting,
    /// It has an item for so many ticks still, and has not looked which one.
    Taken(u8),
    /// It works on this item, and has it for so many ticks still.
    Held(Item, u8),
    /// It has ended. What it sent may still run.
    Dead,
}

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spent {
    /// Pushes.
    pub items: u8,
    /// First asks.
    pub asks: u8,
    /// Further asks.
    pub polls: u8,
    /// Asks since a timer has ended.
    pub repeats: u8,
    /// Renewals.
    pub renewals: u8,
    /// Clients that ended.
    pub crashes: u8,
    /// Requests that ran twice.
    pub doubles: u8,
    /// Letters that were lost.
    pub lost_letters: u8,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// An item was lent to one while another, who lives, was before it.
    pub passed: bool,
    /// An item was done that its client did not work on.
    pub mixed: bool,
    /// A letter brought a client its item.
    pub by_letter: bool,
    /// A client had an item by a letter that did not bring it.
    pub by_look: bool,
    /// An item of a client that had ended was lent again.
    pub came_back: bool,
}

/// What may happen next, to the client of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Somebody pushes the next item.
    Push,
    /// It asks for an item.
    Ask(u8),
    /// It asks again while it waits.
    Poll(u8),
    /// It gives up, or gives its item back.
    Back(u8),
    /// It reports its item as done.
    Done(u8),
    /// It renews its delivery.
    Renew(u8),
    /// It ends.
    Crash(u8),
    /// The server runs its next request.
    Run(u8),
    /// The server runs its next request, which arrives once more.
    RunTwice(u8),
    /// It hears the answer.
    Hear(u8),
    /// It hears the answer to a request that it has given up.
    HearStray(u8),
    /// Its timer ends.
    Timer(u8),
    /// It reads the next letter.
    Read(u8),
    /// The next letter is lost.
    LoseLetter(u8),
    /// It looks which item it has.
    LookAt(u8),
    /// Time passes.
    Tick,
}
