# KAFDROP is the console's address. Each answer is a line of JSON.
ask="curl -sS --fail-with-body -H Accept:application/json -w \n"

$ask "$KAFDROP/"
$ask "$KAFDROP/topic/orders"
$ask "$KAFDROP/topic/orders/messages?partition=0&offset=10&count=25&isAnyProto=false"
$ask "$KAFDROP/topic/orders/consumers"
$ask "$KAFDROP/consumer/billing"
