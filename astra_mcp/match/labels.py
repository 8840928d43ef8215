"""The closed list of words that may introduce an answer: "the confirmation number is", "Titles:".

A phrase is harmless when each of its words is listed. No word that picks another value ("old",
"cancelled", "other", "cheapest") or another order ("reverse", "last") is on the list, so such a
phrase refuses the answer; a natural phrase with an unlisted word is refused as well, on purpose.
"""

from __future__ import annotations

import re
from typing import Final

_FUNCTION: Final = (
    "the a an your my our its his her their this that these those it they there here is are was "
    "were will would be s of for to in on at by and so thus therefore hence as has have "
    "you asked requested needed wanted all both total both two three four five six seven eight "
    "nine ten following final correct right exact full complete official "
    "der die das den dem des ein eine ihr ihre ihrer mein meine es ist sind war lautet lauten für "
    "von zum zur und im am "
    "la le les l un une votre vos mon ma mes ce c est sont était de du pour et "
    "el los las su sus tu mi son era del para y"
)
_NOUNS: Final = (
    "answer answers result results value values code codes number numbers no id ids reference "
    "references ref identifier confirmation booking reservation pickup collection order request "
    "ticket invoice receipt statement account bill payment transfer transaction case loan hold "
    "shipment delivery quote offer contract licence license plate serial tracking policy "
    "airport station port stop branch airline flight train route line city town country region "
    "state district place location venue venues address street building room rooms table seat "
    "floor wing area zone name names title titles person people author authors artist artists "
    "owner contact counter member members customer patient doctor teacher driver employee "
    "company companies carrier carriers supplier suppliers vendor shop store restaurant hotel "
    "theatre theater museum library clinic school work works painting paintings book books film "
    "films song songs play plays piece pieces exhibit exhibits item items product products part "
    "parts model models make brand type kind category status colour color language unit field "
    "species bird birds animal animals plant plants pet vehicle vehicles van vans truck trucks "
    "car cars boat boats device devices date dates day days time times year years month weekday "
    "hour amount price cost total sum balance list display stops cities countries tickets orders "
    "option event events task tasks email phone file version "
    "antwort ergebnis wert nummer kennung bestätigung bestätigungsnummer bestellnummer buchung "
    "buchungsnummer buchungscode reservierung rechnung konto flughafen stadt land ort adresse "
    "titel firma datum uhrzeit zeit betrag preis liste namen "
    "réponse résultat valeur numéro référence réservation commande facture compte aéroport ville "
    "pays lieu adresse nom noms titre titres date heure montant prix liste "
    "respuesta resultado valor número código referencia reserva pedido factura cuenta aeropuerto "
    "ciudad país lugar dirección nombre nombres título títulos fecha hora importe precio lista"
)
_HARMLESS: Final = frozenset(f"{_FUNCTION} {_NOUNS}".split())
_CHINESE: Final = re.compile(
    r"(?:最终|正确|您|你|我|该|这个|这些|它们|其|的|确认|预订|预约|订单|取件|答案|结果|机场|城市|国家|"
    r"名称|名字|姓名|标题|日期|时间|金额|价格|编号|号码|代码|号|码|列表|作品|分别|就|那|这|它|有|是|为)*"
)
_PLAIN: Final = re.compile(r"[\w\s.,:;()\[\]'\"*`¶\-/：，、&]*")
_WORD: Final = re.compile(r"[^\W_]+")


def harmless(phrase: str) -> bool:
    """Whether every word of a folded phrase is one that introduces a value without changing it."""
    if not _PLAIN.fullmatch(phrase):
        return False
    return all(
        word in _HARMLESS or bool(_CHINESE.fullmatch(word))
        for word in _WORD.findall(phrase.casefold())
    )
