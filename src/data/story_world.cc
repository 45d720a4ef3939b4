#include "data/story_world.h"

#include <algorithm>
#include <array>

#include "data/story_words.h"

namespace ddl::story {
namespace {

// `count` different numbers of [0, n).
std::vector<Index> some(Index count, Index n, Dice& dice) {
  std::vector<Index> all(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) all[i] = i;
  for (Index i = 0; i < count; ++i) std::swap(all[i], all[i + dice.below(n - i)]);
  all.resize(static_cast<std::size_t>(count));
  return all;
}

Index other_than(Index old, Index n, Dice& dice) { return (old + 1 + dice.below(n - 1)) % n; }

}  // namespace

Index World::place_of(const Thing& thing) const {
  if (thing.holder >= 0) return people[thing.holder].place;
  if (thing.container >= 0) return containers[thing.container].place;
  return thing.place;
}

std::vector<Index> World::held_by(Index person) const {
  std::vector<Index> found;
  for (Index t = 0; t < std::ssize(things); ++t)
    if (things[t].holder == person) found.push_back(t);
  return found;
}

World make_world(Dice& dice) {
  World world;
  world.places = some(2 + dice.below(3), std::ssize(kPlaces), dice);
  const Index places = std::ssize(world.places);
  for (const Index name : some(2 + dice.below(2), std::ssize(kNames), dice))
    world.people.push_back({name, dice.below(places), -1});
  for (const Index word : some(1 + dice.below(2), std::ssize(kContainers), dice))
    world.containers.push_back({word, dice.below(places)});
  for (const Index word : some(2 + dice.below(2), std::ssize(kThings), dice)) {
    Thing thing{word, dice.below(std::ssize(kColors))};
    if (dice.chance(0.3))
      thing.container = dice.below(std::ssize(world.containers));
    else if (dice.chance(0.3))
      thing.holder = dice.below(std::ssize(world.people));
    else
      thing.place = dice.below(places);
    world.things.push_back(thing);
  }
  return world;
}

Happening choose(const World& world, Index actor, Dice& dice) {
  const Person& person = world.people[actor];
  const std::vector<Index> held = world.held_by(actor);
  std::vector<Index> near;  // things that can be taken here
  for (Index t = 0; t < std::ssize(world.things); ++t)
    if (world.things[t].holder < 0 && t != world.just_placed &&
        world.place_of(world.things[t]) == person.place)
      near.push_back(t);
  std::vector<Index> company, traders;
  for (Index p = 0; p < std::ssize(world.people); ++p) {
    if (p == actor || world.people[p].place != person.place) continue;
    company.push_back(p);
    if (!world.held_by(p).empty()) traders.push_back(p);
  }
  std::vector<Index> boxes;
  for (Index c = 0; c < std::ssize(world.containers); ++c)
    if (world.containers[c].place == person.place) boxes.push_back(c);

  // In the order of Event. People with empty hands take what is near; people who hold something use it.
  const bool holds = !held.empty();
  const std::array<double, 8> weights = {holds          ? 3.0
                                         : near.empty() ? 6.0
                                                        : 1.0,
                                         near.empty() ? 0.0
                                         : holds      ? 1.0
                                                      : 6.0,
                                         holds && !boxes.empty() ? 3.5 : 0.0,
                                         holds ? 1.2 : 0.0,
                                         holds && !company.empty() ? 4.0 : 0.0,
                                         holds ? 1.2 : 0.0,
                                         0.7,
                                         holds && !traders.empty() ? 1.0 : 0.0};
  Happening h{static_cast<Event>(dice.weighted(weights)), actor};
  switch (h.event) {
    case Event::kGo:
      h.place = other_than(person.place, std::ssize(world.places), dice);
      break;
    case Event::kTake:
      h.thing = dice.pick(near);
      break;
    case Event::kPutIn:
      h.thing = dice.pick(held);
      h.container = dice.pick(boxes);
      break;
    case Event::kPutDown:
      h.thing = dice.pick(held);
      h.place = person.place;
      break;
    case Event::kGive:
      h.thing = dice.pick(held);
      h.person = dice.pick(company);
      break;
    case Event::kPaint:
      h.thing = dice.pick(held);
      h.value = other_than(world.things[h.thing].color, std::ssize(kColors), dice);
      break;
    case Event::kFeel:
      h.value = person.feeling < 0 ? dice.below(std::ssize(kFeelings))
                                   : other_than(person.feeling, std::ssize(kFeelings), dice);
      break;
    case Event::kTrade:
      h.thing = dice.pick(held);
      h.person = dice.pick(traders);
      h.other_thing = dice.pick(world.held_by(h.person));
      break;
  }
  return h;
}

void apply(const Happening& h, World& world) {
  Person& actor = world.people[h.actor];
  world.just_placed = h.event == Event::kPutIn || h.event == Event::kPutDown ? h.thing : -1;
  const auto place_thing = [&](Index t, Index holder, Index container, Index place) {
    Thing& thing = world.things[t];
    thing.holder = holder, thing.container = container, thing.place = place;
    ++thing.moves;
  };
  switch (h.event) {
    case Event::kGo:
      actor.place = h.place;
      ++actor.moves;
      break;
    case Event::kTake:
      place_thing(h.thing, h.actor, -1, -1);
      break;
    case Event::kPutIn:
      place_thing(h.thing, -1, h.container, -1);
      break;
    case Event::kPutDown:
      place_thing(h.thing, -1, -1, h.place);
      break;
    case Event::kGive:
      place_thing(h.thing, h.person, -1, -1);
      break;
    case Event::kPaint:
      world.things[h.thing].color = h.value;
      ++world.things[h.thing].paints;
      break;
    case Event::kFeel:
      actor.feeling = h.value;
      ++actor.moods;
      break;
    case Event::kTrade:
      place_thing(h.thing, h.person, -1, -1);
      place_thing(h.other_thing, h.actor, -1, -1);
      break;
  }
}

}  // namespace ddl::story
