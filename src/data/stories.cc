// Tells what happens in a story's world. The world decides what is true; this file only finds words for it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "core/error.h"
#include "core/index.h"
#include "data/generated_corpus.h"
#include "data/story_templates.h"
#include "data/story_words.h"
#include "data/story_world.h"

namespace ddl {
namespace {

using namespace story;

// What the slots of a template stand for; numbers are those of the world, -1 where there is none.
struct Slots {
  Index actor = -1, person = -1, thing = -1, other_thing = -1;
  Word place, container, color, feeling, thing_word, answer;
};

enum class Question { kThing, kHolder, kColor, kPerson, kFeeling };

class Teller {
 public:
  Teller(std::uint64_t seed, Index i) : dice_(seed, i), world_(make_world(dice_)) {}

  GeneratedDocument tell() {
    introduce();
    const Index events = 4 + dice_.below(5);
    Index actor = dice_.below(std::ssize(world_.people));
    for (Index e = 0; e < events; ++e) {
      if (e > 0 && dice_.chance(0.4)) actor = dice_.below(std::ssize(world_.people));
      happen(choose(world_, actor, dice_));
      if (dice_.chance(0.15)) aside();
      if (e > 1 && dice_.chance(0.15)) ask_on_the_way();
    }
    say(dice_.pick(kEndings), {});
    const Index questions = 2 + dice_.below(2);
    for (Index tries = 0; tries < 50 && std::ssize(asked_) < questions; ++tries) ask_at_the_end();
    story_.text += '\n';
    return std::move(story_);
  }

 private:
  const Name& name(Index person) const { return kNames[world_.people[person].name]; }
  Word place_word(Index place) const { return kPlaces[world_.places[place]]; }
  std::string the(Index thing) const { return "the " + std::string(kThings[world_.things[thing].word]); }

  std::string subject(Index person) {
    if (person == last_actor_ && dice_.chance(0.7)) return name(person).girl ? "she" : "he";
    return std::string(name(person).name);
  }

  std::string fill(Text slot, const Slots& s) {
    if (slot == "S") return subject(s.actor);
    if (slot == "N") return std::string(name(s.actor).name);
    if (slot == "he") return name(s.actor).girl ? "she" : "he";
    if (slot == "him") return name(s.actor).girl ? "her" : "him";
    if (slot == "his") return name(s.actor).girl ? "her" : "his";
    if (slot == "child") return name(s.actor).girl ? "girl" : "boy";
    if (slot == "Q") return std::string(name(s.person).name);
    if (slot == "qhim") return name(s.person).girl ? "her" : "him";
    if (slot == "O") return s.thing == last_thing_ && dice_.chance(0.7) ? "it" : the(s.thing);
    if (slot == "T") return the(s.thing);
    if (slot == "U") return the(s.other_thing);
    if (slot == "P") return std::string(s.place);
    if (slot == "C") return std::string(s.container);
    if (slot == "K") return std::string(s.color);
    if (slot == "F") return std::string(s.feeling);
    if (slot == "G") return std::string(dice_.pick(kGrownUps));
    if (slot == "thing") return std::string(s.thing_word);
    DDL_CHECK(slot == "A", "slot {}", slot);
    return std::string(s.answer);
  }

  // Appends the sentences of a template, each beginning with a capital letter.
  void say(Text sentence, const Slots& slots, Text connective = "") {
    if (!story_.text.empty() && story_.text.back() != '\n') story_.text += ' ';
    bool capital = true;
    opens_quote_ = true;
    const auto put = [&](Text text) {
      for (const char c : text) {
        story_.text += capital && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        // A quotation that ends in ! or ? does not end the sentence around it.
        if (c != ' ') capital = (c == '.' || c == '!' || c == '?') || (c == '"' && capital && opens_quote_);
        if (c == '"') opens_quote_ = !opens_quote_;
      }
    };
    put(connective);
    while (!sentence.empty()) {
      const std::size_t open = std::min(sentence.find('{'), sentence.size());
      put(sentence.substr(0, open));
      sentence.remove_prefix(open);
      if (sentence.empty()) break;
      const std::size_t close = sentence.find('}');
      const Text slot = sentence.substr(1, close - 1);
      const Index begin = std::ssize(story_.text);
      put(fill(slot, slots));
      if (slot == "A") story_.answers.push_back({begin, std::ssize(story_.text)});
      sentence.remove_prefix(close + 1);
    }
    last_actor_ = slots.actor;
    last_thing_ = slots.thing;
  }

  void introduce() {
    Slots first;
    first.actor = 0;
    first.place = place_word(world_.people[0].place);
    last_actor_ = 0;  // so that the opening may continue with "she"
    say(dice_.pick(kOpenings), first);
    for (Index p = 1; p < std::ssize(world_.people); ++p) {
      Slots s;
      s.actor = 0;
      s.person = p;
      s.place = place_word(world_.people[p].place);
      // After a sentence about one friend "her friend" would be the friend's.
      say(p == 1 ? dice_.pick(kFriends) : kFriends[1], s);
    }
    last_actor_ = last_thing_ = -1;
    for (const Container& container : world_.containers) {
      Slots s;
      s.container = kContainers[container.word];
      s.place = place_word(container.place);
      say(dice_.pick(kContainerThere), s);
    }
    for (const Thing& thing : world_.things) {
      Slots s;
      s.actor = thing.holder;
      s.thing_word = kThings[thing.word];
      s.color = kColors[thing.color];
      if (thing.container >= 0) s.container = kContainers[world_.containers[thing.container].word];
      if (thing.place >= 0) s.place = place_word(thing.place);
      say(thing.holder >= 0      ? dice_.pick(kThingHeld)
          : thing.container >= 0 ? dice_.pick(kThingInContainer)
                                 : dice_.pick(kThingInPlace),
          s);
    }
    last_actor_ = last_thing_ = -1;
  }

  void happen(const Happening& h) {
    Slots s;
    s.actor = h.actor, s.person = h.person, s.thing = h.thing, s.other_thing = h.other_thing;
    if (h.place >= 0) s.place = place_word(h.place);
    if (h.container >= 0) s.container = kContainers[world_.containers[h.container].word];
    const auto connective = [&] { return dice_.chance(0.3) ? dice_.pick(kConnectives) : Text(); };
    const auto pick = [&](const auto& templates) {
      const Text text = dice_.pick(templates);
      say(text, s, text.starts_with('"') || text.starts_with("now") ? Text() : connective());
    };
    switch (h.event) {
      case Event::kGo: {
        const auto held = world_.held_by(h.actor);
        if (!held.empty() && dice_.chance(0.4)) {
          s.thing = dice_.pick(held);
          pick(kGoHolding);
        } else if (dice_.chance(0.2)) {
          pick(kGoSaying);
        } else {
          pick(kGoLines);
        }
        break;
      }
      case Event::kTake: {
        const Index container = world_.things[h.thing].container;
        if (container >= 0) s.container = kContainers[world_.containers[container].word];
        container >= 0 ? pick(kTakeOut) : pick(kTakeLines);
        break;
      }
      case Event::kPutIn:
        pick(kPutInLines);
        break;
      case Event::kPutDown:
        pick(kPutDownLines);
        break;
      case Event::kGive:
        pick(kGiveLines);
        break;
      case Event::kPaint:
        s.color = kColors[h.value];
        pick(kPaintLines);
        break;
      case Event::kFeel:
        s.feeling = kFeelings[h.value];
        pick(kFeelLines);
        break;
      case Event::kTrade:
        pick(kTradeLines);
        break;
    }
    if (h.event == Event::kGive && dice_.chance(0.35)) {
      say(dice_.pick(kThanks), s);
      last_actor_ = last_thing_ = -1;
    }
    // "It" and "she" would be two things, or two people, after these.
    if (h.event == Event::kTrade || h.event == Event::kGive) last_actor_ = -1;
    if (h.event == Event::kTrade) last_thing_ = -1;
    apply(h, world_);
  }

  void aside() {
    Slots s;
    s.actor = dice_.below(std::ssize(world_.people));
    s.thing = dice_.below(std::ssize(world_.things));
    // Where the person is not: one does not long for where one stands.
    const Index places = std::ssize(world_.places);
    s.place = place_word((world_.people[s.actor].place + 1 + dice_.below(places - 1)) % places);
    s.container = kContainers[dice_.pick(world_.containers).word];
    s.color = dice_.pick(kColors);
    s.feeling = dice_.pick(kFeelings);
    s.thing_word = dice_.pick(kThings);
    say(dice_.pick(kAside), s);
    last_actor_ = last_thing_ = -1;
  }

  // Questions are about what has changed, mostly: the more often, the more likely.
  std::pair<Question, Index> choose_question() {
    std::vector<double> weights;
    std::vector<std::pair<Question, Index>> questions;
    const auto add = [&](double weight, Question question, Index about) {
      weights.push_back(weight);
      questions.emplace_back(question, about);
    };
    for (Index t = 0; t < std::ssize(world_.things); ++t) {
      const Thing& thing = world_.things[t];
      add(0.3 + 1.5 * static_cast<double>(thing.moves),
          thing.holder >= 0 ? Question::kHolder : Question::kThing, t);
      add(0.1 + 2.0 * static_cast<double>(thing.paints), Question::kColor, t);
    }
    for (Index p = 0; p < std::ssize(world_.people); ++p) {
      add(0.2 + 0.7 * static_cast<double>(world_.people[p].moves), Question::kPerson, p);
      add(static_cast<double>(world_.people[p].moods), Question::kFeeling, p);
    }
    return questions[static_cast<std::size_t>(dice_.weighted(weights))];
  }

  Slots slots_for(Question question, Index about) {
    Slots s;
    if (question == Question::kPerson || question == Question::kFeeling) {
      const Person& person = world_.people[about];
      s.actor = about;
      s.answer = question == Question::kPerson ? place_word(person.place) : kFeelings[person.feeling];
      return s;
    }
    const Thing& thing = world_.things[about];
    s.thing = about;
    s.answer = question == Question::kColor    ? kColors[thing.color]
               : question == Question::kHolder ? name(thing.holder).name
               : thing.container >= 0          ? kContainers[world_.containers[thing.container].word]
                                               : place_word(thing.place);
    return s;
  }

  void ask_on_the_way() {
    const auto [question, about] = choose_question();
    const Slots s = slots_for(question, about);
    last_thing_ = -1;
    last_actor_ = s.actor;  // "Where is Mia? She was in the ..."
    switch (question) {
      case Question::kThing:
        say(dice_.pick(kAskThing), s);
        break;
      case Question::kHolder:
        say(dice_.pick(kAskHolder), s);
        break;
      case Question::kColor:
        say(dice_.pick(kAskColor), s);
        break;
      case Question::kPerson:
        say(dice_.pick(kAskPerson), s);
        break;
      case Question::kFeeling:
        say(dice_.pick(kAskFeeling), s);
        break;
    }
    last_actor_ = last_thing_ = -1;
  }

  void ask_at_the_end() {
    const auto chosen = choose_question();
    if (!asked_.insert(chosen).second) return;
    const auto [question, about] = chosen;
    Slots s = slots_for(question, about);
    last_actor_ = last_thing_ = -1;
    story_.text += '\n';
    switch (question) {
      case Question::kThing:
        if (dice_.chance(0.15)) {
          s.answer = "Nobody";
          return say("Who has {T} now? {A}.", s);
        }
        return say("Where is {T} now? In the {A}.", s);
      case Question::kHolder:
        return say("Who has {T} now? {A}.", s);
      case Question::kColor:
        return say("What color is {T} now? It is {A}.", s);
      case Question::kPerson:
        return say("Where is {N} now? In the {A}.", s);
      case Question::kFeeling:
        return say("How does {N} feel now? Very {A}.", s);
    }
  }

  Dice dice_;
  World world_;
  GeneratedDocument story_;
  bool opens_quote_ = true;                  // whether the next quotation mark opens
  Index last_actor_ = -1, last_thing_ = -1;  // of the sentence before, for "she" and "it"
  std::set<std::pair<Question, Index>> asked_;
};

}  // namespace

GeneratedDocument generate_story(std::uint64_t seed, Index i) { return Teller(seed, i).tell(); }

}  // namespace ddl
