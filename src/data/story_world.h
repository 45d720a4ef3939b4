// The world behind a generated story: who is where, who has what, what is in what. Only valid events happen.
#pragma once

#include <vector>

#include "core/index.h"
#include "data/dice.h"

namespace ddl::story {

struct Person {
  Index name;     // of kNames
  Index place;    // of World::places
  Index feeling;  // of kFeelings; -1: nothing said
  Index moves = 0, moods = 0;
};

struct Container {
  Index word;   // of kContainers
  Index place;  // of World::places; it stays there
};

struct Thing {
  Index word;                                     // of kThings
  Index color;                                    // of kColors
  Index holder = -1, container = -1, place = -1;  // exactly one is set: person, container, or place
  Index moves = 0, paints = 0;
};

enum class Event { kGo, kTake, kPutIn, kPutDown, kGive, kPaint, kFeel, kTrade };

struct Happening {
  Event event;
  Index actor;
  Index thing = -1, other_thing = -1, person = -1, container = -1, place = -1, value = -1;
};

struct World {
  std::vector<Index> places;  // of kPlaces
  std::vector<Person> people;
  std::vector<Container> containers;
  std::vector<Thing> things;
  Index just_placed = -1;  // the thing put down by the last event: nobody takes it up again at once

  // Where the thing is, whoever holds it and whatever it lies in.
  Index place_of(const Thing& thing) const;
  std::vector<Index> held_by(Index person) const;
};

World make_world(Dice& dice);
// Something the actor can do now.
Happening choose(const World& world, Index actor, Dice& dice);
void apply(const Happening& happening, World& world);

}  // namespace ddl::story
