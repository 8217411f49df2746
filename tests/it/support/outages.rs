//! Outages, each made twice: what was remembered of the first must be forgotten by the second.

use std::{cell::Cell, thread};

use super::{Proxy, Server};

/// What goes away and comes back, twice.
pub(crate) struct Outage<'a> {
    way: Way<'a>,
    /// Which of the two it is, from 1 on.
    number: Cell<u32>,
    stage: Cell<Stage>,
}

enum Way<'a> {
    Killed(Vec<&'a Server>),
    Stopped(Vec<&'a Server>),
    CutOff(Vec<&'a Proxy>),
    Silent(Vec<&'a Proxy>),
    Unanswered(Vec<&'a Proxy>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Now,
    Over,
}

impl<'a> Outage<'a> {
    /// These servers crash, and start again with what they keep.
    pub(crate) fn killed(servers: impl IntoIterator<Item = &'a Server>) -> Self {
        Self::of(Way::Killed(servers.into_iter().collect()))
    }

    /// These servers hang, and go on.
    pub(crate) fn stopped(servers: impl IntoIterator<Item = &'a Server>) -> Self {
        Self::of(Way::Stopped(servers.into_iter().collect()))
    }

    /// All connections break here, and none is accepted.
    pub(crate) fn cut_off(ways: impl IntoIterator<Item = &'a Proxy>) -> Self {
        Self::of(Way::CutOff(ways.into_iter().collect()))
    }

    /// Nothing gets through, and no connection breaks.
    pub(crate) fn silent(ways: impl IntoIterator<Item = &'a Proxy>) -> Self {
        Self::of(Way::Silent(ways.into_iter().collect()))
    }

    /// The servers do what they are told, and no answer gets through.
    pub(crate) fn unanswered(ways: impl IntoIterator<Item = &'a Proxy>) -> Self {
        Self::of(Way::Unanswered(ways.into_iter().collect()))
    }

    fn of(way: Way<'a>) -> Self {
        Self { way, number: Cell::new(0), stage: Cell::new(Stage::Over) }
    }

    /// Says what must hold in an outage, for the first one and for the second. `test` begins and ends it, and leaves all as it
    /// found it, so that the second differs from the first in nothing but what is remembered.
    pub(crate) async fn twice(self, mut test: impl AsyncFnMut(&Self)) {
        for number in 1..=2 {
            self.number.set(number);
            self.stage.set(Stage::Before);
            test(&self).await;
            assert_eq!(self.stage.get(), Stage::Over, "the test has made outage {number}");
        }
    }

    /// Which of the two it is: 1 or 2.
    pub(crate) fn number(&self) -> u32 {
        self.number.get()
    }

    pub(crate) fn begins(&self) {
        assert_eq!(self.stage.replace(Stage::Now), Stage::Before, "it begins once");
        match &self.way {
            Way::Killed(servers) => servers.iter().for_each(|server| server.kill()),
            Way::Stopped(servers) => servers.iter().for_each(|server| server.pause()),
            Way::CutOff(ways) => ways.iter().for_each(|way| {
                way.refuse(true);
                way.cut();
            }),
            Way::Silent(ways) => ways.iter().for_each(|way| way.black_hole(true)),
            Way::Unanswered(ways) => ways.iter().for_each(|way| way.drop_replies(true)),
        }
    }

    pub(crate) async fn ends(&self) {
        assert_eq!(self.stage.replace(Stage::Over), Stage::Now, "it has begun");
        match &self.way {
            Way::Killed(servers) => {
                futures_util::future::join_all(servers.iter().map(|server| server.restart())).await;
            }
            Way::Stopped(servers) => servers.iter().for_each(|server| server.resume()),
            Way::CutOff(ways) => ways.iter().for_each(|way| way.refuse(false)),
            Way::Silent(ways) => ways.iter().for_each(|way| way.black_hole(false)),
            Way::Unanswered(ways) => ways.iter().for_each(|way| way.drop_replies(false)),
        }
    }
}

/// Says which of the two a test failed in.
impl Drop for Outage<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("this was outage {} of two", self.number());
        }
    }
}

/// Says what must hold when one server takes the place of another: first of `servers` in this order, and then on the way back.
pub(crate) async fn there_and_back<T>(servers: [&T; 2], mut test: impl AsyncFnMut([&T; 2])) {
    let [old, new] = servers;
    test([old, new]).await;
    test([new, old]).await;
}
