// The words of the generated stories. Few on purpose: a small model should learn all of them in minutes.
#pragma once

#include <array>
#include <string_view>

namespace ddl::story {

using Word = std::string_view;

struct Name {
  Word name;
  bool girl;
};

inline constexpr std::array<Name, 20> kNames = {
    {{"Mia", true},   {"Tom", false},  {"Lily", true},  {"Ben", false}, {"Anna", true},
     {"Max", false},  {"Rose", true},  {"Sam", false},  {"Ella", true}, {"Leo", false},
     {"Lucy", true},  {"Jack", false}, {"Nora", true},  {"Tim", false}, {"Sue", true},
     {"Finn", false}, {"Ruby", true},  {"Noah", false}, {"Zoe", true},  {"Hugo", false}}};

inline constexpr std::array<Word, 16> kThings = {"ball",  "kite",  "doll",   "book", "hat",  "cup",
                                                 "key",   "shell", "drum",   "coin", "bell", "boat",
                                                 "spoon", "lamp",  "ribbon", "stone"};
inline constexpr std::array<Word, 12> kPlaces = {"kitchen", "garden", "park", "barn", "attic", "school",
                                                 "bedroom", "forest", "yard", "shop", "cave",  "meadow"};
inline constexpr std::array<Word, 8> kContainers = {"box",    "basket", "bag",  "chest",
                                                    "bucket", "drawer", "sack", "jar"};
inline constexpr std::array<Word, 8> kColors = {"red",   "blue",  "green", "yellow",
                                                "white", "black", "pink",  "brown"};
inline constexpr std::array<Word, 8> kFeelings = {"happy", "sad",    "tired", "hungry",
                                                  "proud", "sleepy", "cold",  "brave"};

}  // namespace ddl::story
